package consultest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"time"
)

// Service is what is registered with an agent by hand, as any other program would.
type Service struct {
	ID, Name, Address string
	Port              int
	Tags              []string          `json:",omitempty"`
	Meta              map[string]string `json:",omitempty"`
	Weights           *Weights          `json:",omitempty"`
	Check             *Check            `json:",omitempty"`
}

// Weights are a service's shares of traffic by state.
type Weights struct{ Passing, Warning int }

// Check is a health check of a service. Its state is set by SetCheck where it has a TTL.
type Check struct {
	CheckID string `json:",omitempty"`
	TTL     string `json:",omitempty"`
	HTTP    string `json:",omitempty"`
	TCP     string `json:",omitempty"`

	Interval                       string `json:",omitempty"`
	Timeout                        string `json:",omitempty"`
	Status                         string `json:",omitempty"`
	DeregisterCriticalServiceAfter string `json:",omitempty"`
}

// errMissing is the answer 404.
var errMissing = errors.New("404 not found")

// Call sends body, unless it is nil, to a path of the API and decodes the answer into out, unless that is nil. Text and
// bytes are sent as they are, anything else as JSON. Any status but 200 fails the test.
func (a *Agent) Call(t testing.TB, method, path string, body, out any) {
	t.Helper()
	if err := a.call(method, path, body, out); err != nil {
		t.Fatalf("%s: %s %s: %v", a.Name, method, path, err)
	}
}

func (a *Agent) call(method, path string, body, out any) error {
	var data []byte
	switch b := body.(type) {
	case nil:
	case string:
		data = []byte(b)
	case []byte:
		data = b
	default:
		var err error
		if data, err = json.Marshal(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequest(method, "http://"+a.HTTP+path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	if a.token != "" {
		req.Header.Set("X-Consul-Token", a.token)
	}
	client := http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	switch {
	case err != nil:
		return err
	case resp.StatusCode == http.StatusNotFound:
		return errMissing
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %s", resp.Status, answer)
	case out == nil:
		return nil
	}
	return json.Unmarshal(answer, out)
}

// Register registers a service.
func (a *Agent) Register(t testing.TB, s Service) {
	t.Helper()
	a.Call(t, "PUT", "/v1/agent/service/register?replace-existing-checks=true", s, nil)
}

// RegisterAt registers one instance, ID NAME-PORT, at an address, with a check that passes until SetCheck says otherwise.
func (a *Agent) RegisterAt(t testing.TB, name, address string) (id string) {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	number, _ := strconv.Atoi(port)
	id = name + "-" + host + "-" + port
	a.Register(t, Service{ID: id, Name: name, Address: host, Port: number, Check: &Check{CheckID: id, TTL: "24h", Status: "passing"}})
	a.SetCheck(t, id, "passing") // what an agent stores is what was said of a check, not how it began
	return id
}

// maxOps is how many operations one transaction may have.
const maxOps = 64

// Nodes registers services in the catalogue on a node of which there is no agent, each with a check that passes: many in little time.
func (a *Agent) Nodes(t testing.TB, node string, services int, service func(i int) Service) {
	t.Helper()
	type object = map[string]any
	ops := []object{{"Node": object{"Verb": "set", "Node": object{"Node": node, "Address": "10.0.0.1"}}}}
	send := func() {
		t.Helper()
		a.Call(t, "PUT", "/v1/txn", ops, nil)
		ops = ops[:0]
	}
	for i := range services {
		s := service(i)
		check := object{
			"Node": node, "CheckID": s.ID, "ServiceID": s.ID, "Name": "alive", "Status": "passing",
			"Output": "HTTP GET http://" + s.Address + "/health: 200 OK",
		}
		ops = append(ops,
			object{"Service": object{"Verb": "set", "Node": node, "Service": object{
				"ID": s.ID, "Service": s.Name, "Address": s.Address, "Port": s.Port, "Tags": s.Tags, "Meta": s.Meta,
			}}},
			object{"Check": object{"Verb": "set", "Check": check}})
		if len(ops) > maxOps-2 {
			send()
		}
	}
	if len(ops) > 0 {
		send()
	}
}

// SetCheck sets the state of a TTL check: passing, warning or critical.
func (a *Agent) SetCheck(t testing.TB, id, status string) {
	t.Helper()
	a.Call(t, "PUT", "/v1/agent/check/update/"+url.PathEscape(id), map[string]string{"Status": status}, nil)
}

// Deregister takes a service out of an agent.
func (a *Agent) Deregister(t testing.TB, id string) {
	t.Helper()
	a.Call(t, "PUT", "/v1/agent/service/deregister/"+url.PathEscape(id), nil, nil)
}

// Instance is one instance of a service as the catalogue has it.
type Instance struct {
	ID, Address string // host:port
	Status      string // the worst of its checks
	Tags        []string
	Meta        map[string]string
}

// Instances asks the agent who is there of a service, whatever their health.
func (a *Agent) Instances(t testing.TB, name string) []Instance {
	t.Helper()
	var entries []struct {
		Node    struct{ Address string }
		Service struct {
			ID, Address string
			Port        int
			Tags        []string
			Meta        map[string]string
		}
		Checks []struct{ Status string }
	}
	a.Call(t, "GET", "/v1/health/service/"+url.PathEscape(name), nil, &entries)
	var list []Instance
	for _, e := range entries {
		host := e.Service.Address
		if host == "" {
			host = e.Node.Address
		}
		in := Instance{
			ID: e.Service.ID, Address: net.JoinHostPort(host, strconv.Itoa(e.Service.Port)),
			Status: "passing", Tags: e.Service.Tags, Meta: e.Service.Meta,
		}
		for _, c := range e.Checks {
			if c.Status == "critical" || c.Status == "warning" && in.Status == "passing" {
				in.Status = c.Status
			}
		}
		list = append(list, in)
	}
	return list
}

// PutKV writes a value.
func (a *Agent) PutKV(t testing.TB, key, value string) {
	t.Helper()
	a.Call(t, "PUT", "/v1/kv/"+key, value, nil)
}

// DeleteKV deletes a key and, with a slash at its end, all below it.
func (a *Agent) DeleteKV(t testing.TB, key string) {
	t.Helper()
	path := "/v1/kv/" + key
	if key[len(key)-1] == '/' {
		path += "?recurse=true"
	}
	a.Call(t, "DELETE", path, nil, nil)
}

// KV returns a value, and whether the key is there.
func (a *Agent) KV(t testing.TB, key string) (string, bool) {
	t.Helper()
	var list []struct{ Value []byte }
	err := a.call("GET", "/v1/kv/"+key, nil, &list)
	if errors.Is(err, errMissing) {
		return "", false
	}
	if err != nil || len(list) != 1 {
		t.Fatalf("%s: kv %s: %v", a.Name, key, err)
	}
	return string(list[0].Value), true
}

// NextAnswer watches a service as a sidecar does, and sends when the agent answered the watch.
func (a *Agent) NextAnswer(t testing.TB, name string) <-chan time.Time {
	t.Helper()
	client := http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(query string) (index string) {
		resp, err := client.Get("http://" + a.HTTP + "/v1/health/service/" + url.PathEscape(name) + query)
		if err != nil {
			return ""
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return resp.Header.Get("X-Consul-Index")
	}
	index, answered := get(""), make(chan time.Time, 1)
	go func() {
		get("?wait=10s&index=" + index)
		answered <- time.Now()
	}()
	return answered
}
