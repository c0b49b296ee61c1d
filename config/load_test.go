package config

import (
	"testing"
	"time"
)

func noEnv(string) (string, bool) { return "", false }

const small = `node: {service: shop}
services:
  catalog:
    endpoints: [127.0.0.1:8081, 127.0.0.1:8082]
    policy: {timeout: 1s, retry: 1}
`

func TestSmallFile(t *testing.T) {
	c, err := LoadBytes("small.yaml", []byte(small), RankFile, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	s := c.Services["catalog"]
	if c.Node.Service != "shop" || len(s.Endpoints) != 2 || s.Endpoints[1].Address != "127.0.0.1:8082" || s.Hosts[0] != "catalog" {
		t.Errorf("got node %+v, service %+v", c.Node, s)
	}
	p := c.ServicePolicy(s)
	if p.Timeout.Value != time.Second || p.Timeout.From.String() != "small.yaml:5:23" {
		t.Errorf("timeout %v from %s", p.Timeout.Value, p.Timeout.From)
	}
	if p.Retry.Count.Value != 1 || p.ConnectTimeout.Value != time.Second || p.ConnectTimeout.From.String() != "built in" {
		t.Errorf("retry %+v, connect %+v", p.Retry.Count, p.ConnectTimeout)
	}
	if c.Listen.Outbound != "127.0.0.1:15001" || len(c.Warnings) != 0 {
		t.Errorf("listen %+v, warnings %v", c.Listen, c.Warnings)
	}
}
