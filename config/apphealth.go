package config

import "time"

// AppHealth is how our app is asked whether it is well.
type AppHealth struct {
	Probe
	// UnhealthyAfter and HealthyAfter are how many answers in a row change the verdict. A connection that is refused counts at
	// once: there is no app.
	UnhealthyAfter, HealthyAfter int
}

func defaultAppHealth() AppHealth {
	return AppHealth{Probe: Probe{Interval: 2 * time.Second, Timeout: time.Second}, UnhealthyAfter: 2, HealthyAfter: 1}
}
