package consul

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sidecar-mesh/sidecar/e2e/consultest"
	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// Every command of docs/consul.md is run in the order of the page, against a real Consul, with the files that it speaks of. (Its
// configurations are loaded by internal/doctest.)
func TestCommandsOfTheDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/consul.md")
	if err != nil {
		t.Fatal(err)
	}
	agent := consultest.Dev(t)
	dir := t.TempDir()
	for name, content := range map[string]string{
		"sidecar.yaml": "registries: {main: {consul: {address: \"" + agent.HTTP + "\"}}}\nconfig_center: {consul: {registry: main, prefix: sidecar/}}\n" +
			"services: {shop: {from: main}, reviews: {from: main}}\n",
		"provider.yaml": "registries: {main: {consul: {address: \"" + agent.HTTP + "\"}}}\nconfig_center: {consul: {registry: main}}\n" +
			"inbound: [{service: shop, app: \"127.0.0.1:1\", policy: {timeout: 1s}}]\n",
		"reads.yaml": "timeout: 1s\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bin := t.TempDir()
	for name, path := range map[string]string{"sidecar": sidecartest.Build(t), "consul": consultest.Binary(t)} {
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	ran := 0
	blocks := regexp.MustCompile("(?ms)^```(?:sh|text)\n(.*?)^```").FindAllStringSubmatch(string(text), -1)
	for _, block := range blocks {
		for line := range strings.Lines(block[1]) {
			line = strings.ReplaceAll(strings.TrimSpace(line), "127.0.0.1:8500", agent.HTTP)
			endless := strings.HasPrefix(line, "sidecar config watch")
			if endless {
				line = "timeout --preserve-status -s INT 3 " + line
			}
			cmd := exec.Command("sh", "-c", line)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "CONSUL_HTTP_ADDR="+agent.HTTP)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", line, err, out)
			}
			ran++
		}
	}
	if ran < 10 {
		t.Errorf("%d commands were found", ran)
	}
	if v, ok := agent.KV(t, "sidecar/switches/no-reviews"); !ok || !strings.Contains(v, "reviews") {
		t.Errorf("the last command did nothing: %q", v)
	}
}
