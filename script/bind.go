package script

import (
	"strconv"
	"strings"
	"sync"

	"github.com/dop251/goja"

	"github.com/sidecar-mesh/sidecar/route"
)

// bind gives a runtime what a program may see of one call.
func bind(vm *goja.Runtime, call *route.ScriptCall, see *sight) error {
	set, ok := goja.AssertFunction(vm.Get("__bind"))
	if !ok {
		return errShim
	}
	endpoints := make([]any, len(call.Endpoints))
	for i := range call.Endpoints {
		e := &call.Endpoints[i]
		port, _ := strconv.Atoi(e.Port)
		endpoints[i] = vm.ToValue(map[string]any{
			"index": i, "host": e.Host, "port": port, "label": e.Label,
			"group": e.Label("group"), "version": e.Label("version"), "zone": e.Label("zone"), "region": e.Label("region"),
		})
	}
	request := map[string]any{
		"method": call.Method, "service": call.Caller.Service, "address": "", "path": "", "verb": "", "host": "",
		"header": func(string) goja.Value { return goja.Null() }, "query": func(string) goja.Value { return goja.Null() },
		"cookie": func(string) goja.Value { return goja.Null() },
	}
	if a := call.Caller.Addr; a.IsValid() {
		request["address"] = a.String()
	}
	if call.Facts != nil {
		see.look(func(f *route.Facts) {
			request["path"], request["verb"], request["host"] = strings.Clone(f.Path), strings.Clone(f.Method), strings.Clone(f.Host)
		})
		ask := func(find func(f *route.Facts, name string) (string, bool)) func(string) goja.Value {
			return func(name string) goja.Value {
				v := goja.Null()
				see.look(func(f *route.Facts) {
					if s, ok := find(f, name); ok {
						v = vm.ToValue(strings.Clone(s))
					}
				})
				return v
			}
		}
		request["query"] = ask(func(f *route.Facts, name string) (string, bool) { return route.QueryValue(f.Query, name) })
		if call.Facts.Fields != nil {
			request["header"] = ask(func(f *route.Facts, name string) (string, bool) { return f.Fields.Get(name) })
			request["cookie"] = ask(func(f *route.Facts, name string) (string, bool) { return route.CookieValue(f.Fields, name) })
		}
	}
	_, err := set(goja.Undefined(), vm.NewArray(endpoints...), vm.ToValue(request))
	return err
}

// sight is the request as long as it may be looked at: its memory goes to the next one when the call is over, and a run
// that was given up may still be under way then.
type sight struct {
	mu    sync.Mutex
	facts *route.Facts // guarded by mu
}

func (s *sight) look(at func(*route.Facts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.facts != nil {
		at(s.facts)
	}
}

func (s *sight) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.facts = nil
}
