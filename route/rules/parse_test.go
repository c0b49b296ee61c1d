package rules

import (
	"slices"
	"strings"
	"testing"
)

// TestPrinted: the examples of the specification, as printed (S-114 … S-122, X-15).
func TestPrinted(t *testing.T) {
	for _, c := range []struct {
		id, text string
		want     []string
		warnings []string // a part of each
	}{
		{"S-114", "condition://0.0.0.0/dubbo.test.interfaces.TestService?category=routers&dynamic=true&priority=2&enabled=true&rule=" +
			"host%20%3D%2010.20.153.10%3D%3E%20host%20%3D%2010.20.153.11", []string{"host = 10.20.153.10 => host = 10.20.153.11"}, nil},
		{
			"S-114, blanks as +", "condition://0.0.0.0/x?rule=host+%3D+10.20.153.10%3D%3E+host+%3D+10.20.153.11",
			[]string{"host = 10.20.153.10 => host = 10.20.153.11"},
			nil,
		},
		{
			"S-114, not encoded", "condition://0.0.0.0/x?category=routers&rule=host = 10.20.153.10=> host = 10.20.153.11",
			[]string{"host = 10.20.153.10 => host = 10.20.153.11"},
			[]string{"not URL-encoded"},
		},
		{
			"S-114, as a manual prints it", `condition://0.0.0.0/com.foo.BarService?category=routers&dynamic=false&rule=" + URL.encode("host = 10.20.153.10 => host = 10.20.153.11")`,
			[]string{"host = 10.20.153.10 => host = 10.20.153.11"},
			[]string{"URL.encode"},
		},
		{"S-115", "host = 10.20.153.10 => host = 10.20.153.11", []string{"host = 10.20.153.10 => host = 10.20.153.11"}, nil},
		{"S-116", "=> host ！= 10.20.153.11", []string{"=> host != 10.20.153.11"}, []string{"full-width ！ is read as !"}},
		{"no address", "host = 10.300.1.1,catalog-1,10.1.1.1 => host != 10.1.1.1:80", []string{"host = 10.300.1.1,catalog-1,10.1.1.1 => host != 10.1.1.1:80"}, []string{"host 10.300.1.1 is no address", "host 10.1.1.1:80 is no address"}},
		{"S-117", "host = 10.20.153.10=>", []string{"host = 10.20.153.10 =>"}, nil},
		{"S-118", "=> host != 172.22.3.91", []string{"=> host != 172.22.3.91"}, nil},
		{"S-119", "host != 10.20.153.10,10.20.153.11 =>", []string{"host != 10.20.153.10,10.20.153.11 =>"}, nil},
		{"S-120", "host = 10.20.153.10,10.20.153.11 =>", []string{"host = 10.20.153.10,10.20.153.11 =>"}, nil},
		{"S-121", "host = 172.22.3.* => host = 172.22.3.*", []string{"host = 172.22.3.* => host = 172.22.3.*"}, nil},
		{
			"S-122", "method = find,list,get,is => host =172.22.3.94,172.22.3.95 method != find,list,get,is => host = 172.22.3.97,172.22.3.98",
			[]string{"method = find,list,get,is => host = 172.22.3.94,172.22.3.95", "method != find,list,get,is => host = 172.22.3.97,172.22.3.98"},
			[]string{"2 rules on one line", "write find*", "write list*", "write get*", "write is*"},
		},
		{
			"S-122, prose", "method = find*、get*、is* => host = 172.22.3.94",
			[]string{"method = find*,get*,is* => host = 172.22.3.94"},
			[]string{"full-width 、 is read as ,"},
		},
	} {
		list, warnings, err := Parse(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.id, err)
			continue
		}
		if got := texts(list); !slices.Equal(got, c.want) {
			t.Errorf("%s: read as %q, want %q", c.id, got, c.want)
		}
		if len(warnings) != len(c.warnings) {
			t.Errorf("%s: warnings %q, want %q", c.id, warnings, c.warnings)
			continue
		}
		for i, w := range c.warnings {
			if !strings.Contains(warnings[i], w) {
				t.Errorf("%s: warning %q, want %q in it", c.id, warnings[i], w)
			}
		}
	}
}

// TestURL: what a URL says beside the rule (S-114).
func TestURL(t *testing.T) {
	const rule = "&rule=%3D%3E%20host%20%3D%201.2.3.4"
	list, warnings, err := Parse("condition://10.1.1.1/a.B?name=x&priority=2&enabled=false&force=true&runtime=true&category=routers&dynamic=false&odd=1" + rule)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	r := list[0]
	if r.Name != "x" || r.Priority != 2 || r.Enabled || !r.Force || !r.Runtime || r.Consumer.text != "10.1.1.1" || r.Forbid {
		t.Errorf("%+v", r)
	}
	if len(warnings) != 1 || warnings[0] != "the parameter odd says nothing here" {
		t.Errorf("warnings %q", warnings)
	}
	list, _, err = Parse("script://0.0.0.0/com.foo.BarService?category=routers&dynamic=false&rule=" +
		"%28function%20route%28invokers%29%20%7B%20return%20invokers%3B%20%7D%28invokers%29%29")
	if err != nil || list[0].Script == nil || list[0].Script.Source != "(function route(invokers) { return invokers; }(invokers))" {
		t.Errorf("script: %+v, %v", list, err)
	}
}

// TestRefused: what is no rule, and what the message says.
func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "a rule is expected",
		"host 10.0.0.1 =>":                 `= or != behind host is expected, got "10.0.0.1" at character 6`,
		"host = =>":                        `a value of host is expected, got "=>" at character 8`,
		"host = a => host =":               "a value of host is expected, got the end of the rule",
		"host = a b =>":                    `=>, & or , is expected, got "b" at character 10`,
		"host = a => host = b => host = c": `& or , is expected, got "=>" at character 22`,
		"host == a =>":                     `= is expected, got "==" at character 6`,
		"a = 1 | b = 2 =>":                 `"|" at character 7 is no part of a rule`,
		"host = 10.0.0.0/33 =>":            "is not a network at character 8",
		"host = $ =>":                      "$ without a name",
		"arguments[0] = a =>":              "cannot be matched at character 1",
		"=> method = get*":                 "the right side chooses endpoints",
		"=> host = b method = c":           `& or , is expected, got "method" at character 13`,
		"tag://0.0.0.0/x?rule=a":           "the kind tag:// is not supported",
		"condition://0.0.0.0/x":            "the URL has no rule=",
		"condition://0.0.0.0/x?priority=high&rule=%3D%3E": "priority: a whole number is expected",
		"condition://0.0.0.0/x?force=si&rule=%3D%3E":      "force: true or false is expected",
		"condition://0.0.0.0/x?rule=%3":                   "is cut off",
		"script://0.0.0.0/x?type=groovy&rule=a":           "needs a Java virtual machine",
		"script://0.0.0.0/x?type=jruby&rule=a":            "needs a Java virtual machine",
		"script://0.0.0.0/x?type=lua&rule=a":              `a script in "lua" is not supported`,
		"script://0.0.0.0/x?rule=":                        "the script is empty",
	} {
		list, _, err := Parse(text)
		if err == nil {
			t.Errorf("%q is read as %q", text, texts(list))
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, want %q in it", text, err, want)
		}
	}
}

// TestDoubts: what is allowed, yet hardly meant (S-119).
func TestDoubts(t *testing.T) {
	for text, want := range map[string]string{
		"=>":                       "forbids every caller",
		"host != 10.0.0.1":         "without =>: read as the right side, for every caller",
		"host = a && zone = b =>":  "&& is read as &",
		"host = a, => host = b":    "a comma without a value behind it is passed over",
		"method = get => host = a": "method get fits only a method of exactly that name: write get* for all that begin so",
	} {
		_, warnings, err := Parse(text)
		if err != nil || !slices.Contains(warnings, want) {
			t.Errorf("%q: warnings %q, error %v; want %q", text, warnings, err, want)
		}
	}
}

// FuzzParse: whatever the text, reading it ends well or with an error, and what was understood is understood again.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"host = 10.20.153.10=> host = 10.20.153.11", "=> host ！= 10.20.153.11", "a = b,$c & d != e* => f = 10.0.0.0/8",
		"method = find,list => host =172.22.3.94 method != find,list => host = 172.22.3.97", "condition://0.0.0.0/x?rule=%3D%3E+a%3Db",
		"condition://1.2.3.4/x?priority=2&force=true&rule=a = b =>", "script://0.0.0.0/x?rule=x", "host = ::1 => host = $host", "=>",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, _, err := Parse(text)
		if err != nil {
			return
		}
		if len(list) == 0 {
			t.Fatal("neither a rule nor an error")
		}
		for i := range list {
			if list[i].Script != nil {
				continue
			}
			again, _, err := Parse(list[i].Text)
			if err != nil || len(again) != 1 || again[0].Text != list[i].Text {
				t.Fatalf("%q was understood as %q, and that as %q (%v)", text, list[i].Text, texts(again), err)
			}
		}
	})
}
