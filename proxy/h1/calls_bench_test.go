package h1_test

import (
	"syscall"
	"testing"
	"time"
)

// BenchmarkCalls compares the CPU of an exchange on a plain route with one that has backups, fallback, switches and automatic
// limits configured and idle: cpu-ns/op is what the whole process used, client and origin included.
func BenchmarkCalls(b *testing.B) {
	for _, c := range []struct{ name, config string }{{"plain", plainConfig}, {"configured", callsConfig}} {
		b.Run(c.name, func(b *testing.B) {
			r := newRig(b, setup{config: c.config, origins: []string{newOrigin(b, steady(0, []byte(lengthAnswer)))}})
			nc := r.dial()
			buf := make([]byte, 4<<10)
			b.ResetTimer()
			begin := cpu()
			for range b.N {
				if _, err := nc.Write([]byte(plainRequest)); err != nil {
					b.Fatal(err)
				}
				if _, err := nc.Read(buf); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((cpu()-begin).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
}

// cpu is the time that the process has used of processors.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail for ourselves
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
