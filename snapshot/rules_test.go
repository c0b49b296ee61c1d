package snapshot_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/internal/meshtest"
	"github.com/sidecar-mesh/sidecar/route"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

// left lists the last parts of the addresses that rules leave to a method, "forbidden" where they refuse.
func left(t *snapshot.Target, method string) string {
	u := t.Under(method, time.Time{})
	if u.Forbidden != nil {
		return "forbidden"
	}
	var hosts []string
	for _, e := range u.Endpoints {
		host := strings.TrimSuffix(e.Address, ":80")
		hosts = append(hosts, host[strings.LastIndexByte(host, '.')+1:])
	}
	if len(hosts) != u.Set.Len() {
		panic("the balancer knows others")
	}
	return strings.Join(hosts, " ")
}

func ruled(t *testing.T, node, endpoints string, rules ...string) *snapshot.Snapshot {
	t.Helper()
	doc := "node: {service: shop, " + node + "}\nservices:\n  catalog:\n    endpoints: [" + endpoints + "]\n    rules:\n"
	for _, r := range rules {
		doc += fmt.Sprintf("      - %s\n", r)
	}
	return meshtest.Compile(t, doc)
}

// TestRules: nodes are chosen by rule before the call (S-109): the printed examples (S-115 … S-122), and what the grammar has beside them.
func TestRules(t *testing.T) {
	const room = "172.22.3.91:80, 172.22.3.94:80, 172.22.3.95:80, 172.22.3.97:80, 172.22.3.98:80"
	for _, c := range []struct {
		id, host, endpoints string
		rules               []string
		method, want        string
	}{
		{"S-115 this caller", "10.20.153.10", "10.20.153.11:80, 10.20.153.12:80", []string{`"host = 10.20.153.10 => host = 10.20.153.11"`}, "", "11"},
		{"S-115 another", "10.20.153.13", "10.20.153.11:80, 10.20.153.12:80", []string{`"host = 10.20.153.10 => host = 10.20.153.11"`}, "", "11 12"},
		{
			"S-114 by URL", "10.20.153.10", "10.20.153.11:80, 10.20.153.12:80",
			[]string{`"condition://0.0.0.0/dubbo.test.interfaces.TestService?category=routers&dynamic=true&priority=2&enabled=true&rule=host%20%3D%2010.20.153.10%3D%3E%20host%20%3D%2010.20.153.11"`},
			"", "11",
		},
		{"S-114 disabled", "10.20.153.10", "10.20.153.11:80, 10.20.153.12:80", []string{`"condition://0.0.0.0/x?enabled=false&rule=%3D%3E%20host%20%3D%2010.20.153.11"`}, "", "11 12"},
		{"S-114 one consumer", "10.20.153.10", "10.20.153.11:80, 10.20.153.12:80", []string{`"condition://10.20.153.10/x?rule=%3D%3E%20host%20%3D%2010.20.153.11"`}, "", "11"},
		{"S-114 another consumer", "10.20.153.9", "10.20.153.11:80, 10.20.153.12:80", []string{`"condition://10.20.153.10/x?rule=%3D%3E%20host%20%3D%2010.20.153.11"`}, "", "11 12"},
		{"S-116", "10.1.1.1", "10.20.153.10:80, 10.20.153.11:80", []string{`"=> host ！= 10.20.153.11"`}, "", "10"},
		{"S-117", "10.20.153.10", room, []string{`"host = 10.20.153.10=>"`}, "", "forbidden"},
		{"S-117 another", "10.20.153.11", "10.0.0.1:80", []string{`"host = 10.20.153.10=>"`}, "", "1"},
		{"S-118 exclude", "10.1.1.1", room, []string{`"=> host != 172.22.3.91"`}, "", "94 95 97 98"},
		{"S-119 on the list", "10.20.153.11", "10.0.0.1:80", []string{`"host != 10.20.153.10,10.20.153.11 =>"`}, "", "1"},
		{"S-119 not on it", "10.20.153.12", "10.0.0.1:80", []string{`"host != 10.20.153.10,10.20.153.11 =>"`}, "", "forbidden"},
		{"S-120 banned", "10.20.153.11", "10.0.0.1:80", []string{`"host = 10.20.153.10,10.20.153.11 =>"`}, "", "forbidden"},
		{"S-120 not banned", "10.20.153.12", "10.0.0.1:80", []string{`"host = 10.20.153.10,10.20.153.11 =>"`}, "", "1"},
		{"S-121 same room", "172.22.3.7", "172.22.3.1:80, 172.22.4.2:80", []string{`"host = 172.22.3.* => host = 172.22.3.*"`}, "", "1"},
		{"S-121 another room", "172.22.4.7", "172.22.3.1:80, 172.22.4.2:80", []string{`"host = 172.22.3.* => host = 172.22.3.*"`}, "", "1 2"},
		{"S-122 as printed, get", "10.1.1.1", room, []string{`"method = find,list,get,is => host =172.22.3.94,172.22.3.95 method != find,list,get,is => host = 172.22.3.97,172.22.3.98"`}, "get", "94 95"},
		{"S-122 as printed, getUser is no get", "10.1.1.1", room, []string{`"method = find,list,get,is => host =172.22.3.94,172.22.3.95 method != find,list,get,is => host = 172.22.3.97,172.22.3.98"`}, "getUser", "97 98"},
		{"S-122 with stars, read", "10.1.1.1", room, []string{`"method = find*,list*,get*,is* => host = 172.22.3.94,172.22.3.95"`, `"method != find*,list*,get*,is* => host = 172.22.3.97,172.22.3.98"`}, "getUser", "94 95"},
		{"S-122 with stars, write", "10.1.1.1", room, []string{`"method = find*,list*,get*,is* => host = 172.22.3.94,172.22.3.95"`, `"method != find*,list*,get*,is* => host = 172.22.3.97,172.22.3.98"`}, "saveUser", "97 98"},
		{"S-122 no method", "10.1.1.1", room, []string{`"method = get* => host = 172.22.3.94"`, `"method != get* => host = 172.22.3.97"`}, "", "97"},
		{"in parts", "10.1.1.1", room, []string{`{when: {method: "get*"}, then: {host: [172.22.3.94, 172.22.3.95]}}`, `{when: {application: "!shop"}, forbid: true}`}, "getUser", "94 95"},
		{"network", "10.1.1.1", "10.1.0.1:80, 10.2.0.2:80", []string{`"host = 10.0.0.0/8 => host = 10.2.0.0/16"`}, "", "2"},
		{"$host", "10.1.1.1", "10.1.1.1:80, 10.2.0.2:80", []string{`"=> host = $host"`}, "", "1"},
		{"$host of nobody is passed over", "10.1.1.3", "10.1.1.1:80, 10.2.0.2:80", []string{`"=> host = $host"`}, "", "1 2"},
		{"two conditions", "10.1.1.1", "10.0.0.1:80, 10.0.0.2:80", []string{`"host = 10.1.1.1 & application = shop => host = 10.0.0.1"`}, "", "1"},
		{"two conditions, one fails", "10.1.1.1", "10.0.0.1:80, 10.0.0.2:80", []string{`"host = 10.1.1.1 & application = cart => host = 10.0.0.1"`}, "", "1 2"},
		{"in and out", "10.1.1.1", "10.0.0.1:80, 10.0.0.2:80", []string{`"=> host = 10.0.0.* & host != 10.0.0.2"`}, "", "1"},
		{"unknown attribute, =", "10.1.1.1", "10.0.0.1:80", []string{`"team = x =>"`}, "", "1"},
		{"unknown attribute, !=", "10.1.1.1", "10.0.0.1:80", []string{`"team != x =>"`}, "", "forbidden"},
		{"passed over", "10.1.1.1", "10.0.0.1:80", []string{`"=> host = 10.9.9.9"`}, "", "1"},
		{"force", "10.1.1.1", "10.0.0.1:80", []string{`{rule: "=> host = 10.9.9.9", force: true}`}, "", ""},
		{"one narrows after the other", "10.1.1.1", "10.0.0.1:80, 10.0.0.2:80, 10.0.0.3:80", []string{`"=> host != 10.0.0.1"`, `"=> host != 10.0.0.2"`}, "", "3"},
		{
			"priority decides what is passed over", "10.1.1.1", "10.0.0.1:80, 10.0.0.2:80",
			[]string{`{rule: "=> host = 10.0.0.1", priority: 1}`, `{rule: "=> host = 10.0.0.2", priority: 2}`},
			"", "2",
		},
		{"IPv6", `"fd00::7"`, `"[fd00::1]:80", "[fd01::2]:80"`, []string{`"host = fd00::/16 => host = fd00:0:0::1"`}, "", "fd00::1]"},
	} {
		s := ruled(t, "address: "+c.host, c.endpoints, c.rules...)
		svc, _ := s.Outbound.Get("catalog")
		got := strings.ReplaceAll(left(svc.Rest.Targets[0], c.method), "[", "")
		if got != c.want {
			t.Errorf("%s: %q is left, want %q", c.id, got, c.want)
		}
	}
}

// TestRuleMethods: on HTTP the name of the route is the method, for gRPC it is the last part of the path.
func TestRuleMethods(t *testing.T) {
	s := meshtest.Compile(t, `services:
  a:
    endpoints: [10.0.0.1:80, 10.0.0.2:80]
    rules: ["method = get* => host = 10.0.0.1", "method != get* => host = 10.0.0.2"]
    routes:
      - {name: getUser, match: GET /users/*}
`)
	a, _ := s.Outbound.Get("a")
	get := a.Match(&route.Facts{Method: "GET", Path: "/users/7"})
	if got := left(get.Targets[0], get.Method("")); got != "1" {
		t.Errorf("the route getUser: %q", got)
	}
	if got := left(a.Rest.Targets[0], a.Rest.Method("")); got != "2" {
		t.Errorf("no route: %q", got)
	}
	if got := left(a.Rest.Targets[0], a.Rest.Method("/shop.Users/getUser")); got != "1" {
		t.Errorf("gRPC: %q", got)
	}
}

// TestRuleMistakes: what is no rule is refused with its place; what is hardly meant is a warning with its place.
func TestRuleMistakes(t *testing.T) {
	s := ruled(t, "address: 10.0.0.9", "10.0.0.1:80", `"host != 10.0.0.1,10.0.0.2 =>"`, `"host != 10.0.0.3 =>"`, `"host ！= 10.0.0.* =>"`)
	var texts []string
	for _, w := range s.Warnings {
		texts = append(texts, w.Error())
	}
	want := []string{
		`test.yaml:8:9: rules of catalog[2]: the full-width ！ is read as !`,
		`test.yaml:6:7: rules of catalog: the whitelists "host != 10.0.0.1,10.0.0.2 =>" and "host != 10.0.0.3 =>" have nobody in common: every caller is forbidden`,
	}
	if !slices.Equal(texts, want) {
		t.Errorf("warnings\n%s\nwant\n%s", strings.Join(texts, "\n"), strings.Join(want, "\n"))
	}
}

// TestUnderAllocatesNothing: what rules leave to a method that was seen before is found without garbage.
func TestUnderAllocatesNothing(t *testing.T) {
	s := ruled(t, "address: 10.1.1.1", "10.0.0.1:80, 10.0.0.2:80", `"method = get*,find* => host = 10.0.0.1"`, `"method = save* => host = 10.0.0.2"`)
	svc, _ := s.Outbound.Get("catalog")
	target := svc.Rest.Targets[0]
	target.Under("getUser", time.Time{})
	target.Under("saveUser", time.Time{})
	if n := testing.AllocsPerRun(100, func() { target.Under("getItem", time.Time{}); target.Under("saveItem", time.Time{}) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestGuard: what our own app refuses, by the address of the caller alone (S-117, S-120).
func TestGuard(t *testing.T) {
	s := meshtest.Compile(t, `node: {service: shop}
inbound: [{app: 127.0.0.1:80}]
rules:
  shop: ["host = 10.0.0.0/8 & host != 10.0.0.1 =>", "application != web =>", "=> host = 10.9.9.9", "method = drop* & host = 11.0.0.1 =>"]
`)
	shop, _ := s.Inbound.Get("shop")
	for _, c := range []struct {
		caller, method string
		refused        bool
	}{
		{"10.0.0.2", "", true},
		{"10.0.0.1", "", false},
		{"11.0.0.1", "", false},
		{"11.0.0.1", "dropAll", true},
		{"11.0.0.1", "getAll", false},
	} {
		if got := shop.Refuses(netip.MustParseAddr(c.caller), c.caller, c.method, time.Time{}) != nil; got != c.refused {
			t.Errorf("%s calls %q: refused %v, want %v", c.caller, c.method, got, c.refused)
		}
	}
	a := netip.MustParseAddr("10.0.0.2")
	if n := testing.AllocsPerRun(100, func() { shop.Refuses(a, "10.0.0.2", "get", time.Time{}) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestNearGroup: with `prefer: group` the endpoints of our own group come first (S-110, S-128).
func TestNearGroup(t *testing.T) {
	s := meshtest.Compile(t, `node: {service: shop, group: core}
services:
  a:
    endpoints: [{address: 10.0.0.1:80, group: core}, {address: 10.0.0.2:80, group: rest}, 10.0.0.3:80]
    policy: {locality: {prefer: group, spill_below: 70%}}
`)
	a, _ := s.Outbound.Get("a")
	set := a.Rest.Targets[0].Set
	for i, near := range []bool{true, false, false} {
		if set.Endpoint(i).Near != near {
			t.Errorf("%s is near: %v, want %v", a.Endpoints[i].Address, !near, near)
		}
	}
}

// TestMirrorFollowsGroups: copies leave a group that is switched away, as calls do (S-133).
func TestMirrorFollowsGroups(t *testing.T) {
	for _, c := range []struct{ group, switched, want string }{
		{"", "[]", "10.0.0.1:80 10.0.0.2:80"},
		{"", "[{service: next, from: bj, to: [sh]}]", "10.0.0.2:80"},
		{"group: bj, ", "[]", "10.0.0.1:80"},
		{"group: bj, ", `[{service: "*", from: bj, to: [sh]}]`, "10.0.0.2:80"},
	} {
		s := meshtest.Compile(t, fmt.Sprintf(`services:
  shop: {endpoints: [10.0.1.1:80], policy: {mirror: {service: next, ratio: 100%%}}}
  next: {%sendpoints: [{address: 10.0.0.1:80, group: bj}, {address: 10.0.0.2:80, group: sh}]}
groups: %s
`, c.group, c.switched))
		shop, _ := s.Outbound.Get("shop")
		var got []string
		for _, e := range shop.Rest.Mirror.To.Endpoints {
			got = append(got, e.Address)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%q, groups %s: copies go to %s, want %s", c.group, c.switched, got, c.want)
		}
	}
}
