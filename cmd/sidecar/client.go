package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// client asks the admin API of a running sidecar.
type client struct {
	base string
	http http.Client
}

// patience is how long an answer of the admin API may take.
const patience = 10 * time.Second

func newClient(address string) *client {
	return &client{base: "http://" + strings.TrimSuffix(strings.TrimPrefix(address, "http://"), "/"), http: http.Client{
		Timeout:   patience,
		Transport: &http.Transport{DisableKeepAlives: true, Proxy: nil}, // our own loopback, whatever the environment says
	}}
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 256 << 20

// call makes a request and decodes a good answer into out. status is that of the answer; an answer that says no is an
// error unless it is allowed, and decoded then.
func (c *client) call(method, path string, query url.Values, out any, allowed ...int) (status int, err error) {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.send(method, path, nil, out, allowed...)
}

// send is call with a body, JSON if there is one, and a path with its query.
func (c *client) send(method, path string, body io.Reader, out any, allowed ...int) (status int, err error) {
	q, err := http.NewRequest(method, c.base+path, body)
	if err != nil {
		return 0, err
	}
	if body != nil {
		q.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(q)
	if err != nil {
		return 0, fmt.Errorf("the admin API does not answer: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return resp.StatusCode, err
	}
	good := resp.StatusCode < 300
	for _, s := range allowed {
		good = good || s == resp.StatusCode
	}
	if !good {
		var p struct{ Title, Detail string }
		if json.Unmarshal(text, &p) == nil && p.Title != "" {
			return resp.StatusCode, fmt.Errorf("%s %s: %s: %s", method, path, p.Title, p.Detail)
		}
		return resp.StatusCode, fmt.Errorf("%s %s: %s", method, path, resp.Status)
	}
	if err := json.Unmarshal(text, out); err != nil {
		return resp.StatusCode, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return resp.StatusCode, nil
}
