package main

import "github.com/sidecar-mesh/sidecar/admin"

// Apps implements admin.Process.
func (v *view) Apps() []admin.App {
	list := v.proxy.Apps()
	out := make([]admin.App, len(list))
	for i, a := range list {
		out[i] = admin.App{Service: a.Service, State: "unknown", Reason: a.Why, Since: a.Since}
		switch {
		case a.Known && a.Well:
			out[i].State = "well"
		case a.Known:
			out[i].State = "ill"
		}
	}
	return out
}

// Registrations implements admin.Process.
func (v *view) Registrations() []admin.Registration { return nil }
