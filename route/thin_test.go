package route

import "testing"

func TestThin(t *testing.T) {
	h, err := NewHosts(map[string]int{"a": 1, "*.b.c": 2, "*": 3, "a:80": 4, "::1": 5})
	if err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]int{"A.:8080": 1, "x.b.c": 2, "b.c": 3, "a:80": 4, "[0:0::1]:1": 5} {
		if id, ok := h.Lookup(in); !ok || id != want {
			t.Errorf("%s: %d %v, want %d", in, id, ok, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { h.Lookup("x.y.b.C:80"); h.Lookup("[::1]:80") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
