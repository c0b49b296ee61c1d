package hystrix_test

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/hystrix"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestConvert: the example of S-155 and names as Hystrix makes them; what is written loads, and means the same.
func TestConvert(t *testing.T) {
	data, err := os.ReadFile("testdata/inventory.properties")
	if err != nil {
		t.Fatal(err)
	}
	got := hystrix.Convert(string(data))
	if *update {
		if err := os.WriteFile("testdata/inventory.yaml", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/inventory.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	cfg, err := config.LoadBytes("inventory.yaml", []byte(got), config.RankFile, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := cfg.Policies["inventory-by-productcode"]
	if p == nil || p.Timeout.Value != 2*time.Second || p.Breaker.ErrorThreshold.Value != 0.6 || p.Breaker.RequestVolume.Value != 10 ||
		p.Limit.InFlight.Value != 30 || p.Limit.Waiting.Value != 0 || !p.Limit.Waiting.Set {
		t.Errorf("%+v", p)
	}
	if d := cfg.Defaults; d.Timeout.Value != 3*time.Second || d.Breaker.ErrorThreshold.Value != 0.6 {
		t.Errorf("%+v", d)
	}
	if p := cfg.Policies["Catalog-find-Long"]; p == nil || !p.Breaker.Off.Value || p.Timeout.Value != 0 || !p.Timeout.Set {
		t.Errorf("%+v", p)
	}
}

// FuzzConvert: whatever the properties are, what is written is a document that is read, though it may be refused.
func FuzzConvert(f *testing.F) {
	f.Add("hystrix.command.a.circuitBreaker.errorThresholdPercentage=60")
	f.Add("hystrix.command.a: b\nhystrix.threadpool..coreSize=1\n=\n#")
	f.Fuzz(func(t *testing.T, text string) {
		got := hystrix.Convert(text)
		if _, err := config.LoadBytes("f.yaml", []byte(got), config.RankFile, nil); err != nil && !strings.Contains(err.Error(), "policies.") && !strings.Contains(err.Error(), "defaults.") {
			t.Errorf("%v\n%s", err, got)
		}
	})
}
