package consul

import (
	"bufio"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/sidecar-mesh/sidecar/e2e/consultest"
	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// Register, look up, sign, unregister, as programs of older config centres do.
func TestFacade(t *testing.T) {
	agent := consultest.Dev(t)
	cmd := exec.Command(sidecartest.Build(t), "config", "serve", "--consul", agent.HTTP, "--prefix", "mesh/", "--listen", "127.0.0.1:0")
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(pipe).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	base := strings.TrimSpace(strings.TrimPrefix(line, "serving on "))
	post := func(action string, form url.Values) (int, string) {
		t.Helper()
		resp, err := http.PostForm(base+"?action="+action, form)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, strings.TrimSpace(string(text))
	}
	group, key := "global.property", "reload.locations"
	_, empty := post("getSign", url.Values{"group": {group}})
	if status, text := post("register", url.Values{"group": {group}, "key": {key}, "value": {"/data1/reload.properties"}}); status != 200 || text != "ok" {
		t.Errorf("%d %s", status, text)
	}
	if v, ok := agent.KV(t, "mesh/"+group+"/"+key); !ok || v != "/data1/reload.properties" {
		t.Errorf("%q %v", v, ok)
	}
	if _, text := post("lookup", url.Values{"group": {group}, "key": {key}}); text != "/data1/reload.properties" {
		t.Errorf("%q", text)
	}
	_, one := post("getSign", url.Values{"group": {group}})
	if _, again := post("getSign", url.Values{"group": {group}}); again != one || one == empty {
		t.Errorf("signs %s %s %s", empty, one, again)
	}
	if status, _ := post("unregister", url.Values{"group": {group}, "key": {key}}); status != 200 {
		t.Errorf("%d", status)
	}
	if status, _ := post("lookup", url.Values{"group": {group}, "key": {key}}); status != http.StatusNotFound {
		t.Errorf("%d", status)
	}
	if status, _ := post("nonsense", url.Values{"group": {group}, "key": {key}}); status != http.StatusBadRequest {
		t.Errorf("%d", status)
	}
}
