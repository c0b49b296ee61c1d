package consultest

import (
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// Keys are files of a certificate authority and of a client's certificate that it signed.
type Keys struct{ CA, Cert, Key string }

// managementToken is that of the test's own calls to an agent of Secure.
const managementToken = "6e7d2b1c-0f52-4a8e-9d35-1f0c6a1b2c3d"

// Secure starts one server whose access control denies by default, and which speaks TLS at HTTPS with whoever has a certificate of its
// authority. The test's own calls go to HTTP with a token that may do everything.
func Secure(t testing.TB) (*Agent, Keys) {
	t.Helper()
	a := newAgent(t, "server-1", true)
	port := freePort(t, a.host)
	a.HTTPS = net.JoinHostPort(a.host, port)
	number, _ := strconv.Atoi(port)
	a.token = managementToken
	for _, args := range [][]string{
		{"ca", "create"},
		{"cert", "create", "-server", "-additional-ipaddress=" + a.host},
		{"cert", "create", "-client"},
	} {
		cmd := exec.Command(Binary(t), append([]string{"tls"}, args...)...)
		cmd.Dir = a.folder
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	file := func(name string) string { return filepath.Join(a.folder, name) }
	ca := file("consul-agent-ca.pem")
	a.more = map[string]any{
		"ports": map[string]any{"https": number},
		"acl": map[string]any{
			"enabled": true, "default_policy": "deny",
			"tokens": map[string]any{"initial_management": managementToken, "agent": managementToken},
		},
		"tls": map[string]any{
			"defaults": map[string]any{"ca_file": ca, "cert_file": file("dc1-server-consul-0.pem"), "key_file": file("dc1-server-consul-0-key.pem")},
			"https":    map[string]any{"verify_incoming": true},
		},
	}
	a.configure(t, 1, nil)
	a.launch(t)
	a.Await(t)
	return a, Keys{CA: ca, Cert: file("dc1-client-consul-0.pem"), Key: file("dc1-client-consul-0-key.pem")}
}

// Token makes a token that may do what the rules say, and returns its name for Revoke and its secret.
func (a *Agent) Token(t testing.TB, rules string) (name, secret string) {
	t.Helper()
	var policy struct{ ID string }
	a.Call(t, "PUT", "/v1/acl/policy", map[string]string{"Name": "p" + strconv.Itoa(len(rules)), "Rules": rules}, &policy)
	var token struct{ AccessorID, SecretID string }
	a.Call(t, "PUT", "/v1/acl/token", map[string]any{"Policies": []map[string]string{{"ID": policy.ID}}}, &token)
	return token.AccessorID, token.SecretID
}

// Revoke takes a token away.
func (a *Agent) Revoke(t testing.TB, name string) {
	t.Helper()
	a.Call(t, "DELETE", "/v1/acl/token/"+name, nil, nil)
}
