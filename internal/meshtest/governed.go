package meshtest

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"text/template"
)

// Governed is the document of the benchmark's row "idle" with ORIGIN for its four endpoints: all of governance is configured,
// and has nothing to do. two has the endpoints speak HTTP/2. It is for tests of packages two folders below the module's.
func Governed(t testing.TB, two bool) string {
	t.Helper()
	ports := 0
	next := func() string {
		ports++
		return fmt.Sprintf("127.0.0.1:%d", ports)
	}
	file := filepath.Join("..", "..", "bench", "templates", "idle.yaml.tmpl")
	read, err := template.New(filepath.Base(file)).Funcs(template.FuncMap{"port": next}).ParseFiles(file)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	err = read.Execute(&text, map[string]any{
		"HTTP": next(), "Admin": next(), "Governed": true, "OriginHTTP2": two, "Origins": []string{"ORIGIN", "ORIGIN", "ORIGIN", "ORIGIN"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return text.String()
}
