package admin

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sidecar-mesh/sidecar/config"
)

// What /config shows can be loaded again and says the same, for every field of the language.
func TestDocument(t *testing.T) {
	env := func(name string) (string, bool) {
		if name == "PORT" {
			return "8080", true
		}
		return "", false
	}
	for _, file := range []string{"every.yaml", "small.yaml", "shapes.yaml", "one-line.json"} {
		t.Run(file, func(t *testing.T) {
			c, err := config.Load([]string{"../config/testdata/" + file}, env)
			if err != nil {
				t.Fatal(err)
			}
			text, err := loadable(c)
			if err != nil {
				t.Fatal(err)
			}
			again, err := config.LoadBytes("shown", text, config.RankFile, env)
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			diff := cmp.Diff(c, again,
				cmpopts.IgnoreTypes(config.Origin{}), cmpopts.IgnoreUnexported(config.Config{}, config.Service{}, config.Switch{}),
				cmpopts.IgnoreFields(config.Config{}, "Warnings"), cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{}), cmpopts.EquateEmpty(),
				cmpopts.SortSlices(func(a, b config.Header) bool { return a.Name < b.Name }),
				cmpopts.SortSlices(func(a, b config.ValueMatch) bool { return a.Name < b.Name }))
			if diff != "" {
				t.Errorf("written → read again:\n%s", diff)
			}
		})
	}
}
