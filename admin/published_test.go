package admin

import (
	"testing"

	"github.com/sidecar-mesh/sidecar/config"
)

// What is published can be read by callers, with methods or without.
func TestPublished(t *testing.T) {
	c, err := config.LoadBytes("provider", []byte(`
inbound:
- service: shop
  app: 127.0.0.1:8080
  policy: {use: p, timeout: 1s, retry: 2}
  routes:
  - {name: save, match: POST /save, policy: {retry: 0, timeout: 3s}}
  - {name: plain, match: GET /plain}
policies: {p: {}}`), config.RankFile, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []struct {
		methods bool
		text    string
	}{
		{false, `{"policy":{"retry":{"count":2},"timeout":"1s"}}`},
		{true, `{"policy":{"retry":{"count":2},"timeout":"1s"},"routes":[{"match":{"method":["POST"],"path":{"exact":"/save"}},"name":"save","policy":{"retry":{"count":0},"timeout":"3s"}}]}`},
	} {
		text, err := Published(c.Inbound[0], w.methods)
		if err != nil || string(text) != w.text {
			t.Errorf("%v: %s %v", w.methods, text, err)
		}
		doc := config.Document{Name: "published/shop", Place: "kv", Data: text}
		if _, err := config.LoadDocument(doc, func(string) (string, bool) { return "", false }); err != nil {
			t.Error(err)
		}
	}
	if text, err := Published(&config.Inbound{Service: "shop"}, true); text != nil || err != nil {
		t.Errorf("%s %v", text, err)
	}
}
