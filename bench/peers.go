//go:build linux

package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/sidecar-mesh/sidecar/bench/load"
)

//go:embed templates
var templateFiles embed.FS

// body is what the origin answers: 100 octets.
var body = strings.Repeat("0123456789", 10)

// plain is the request of most rows.
var plain = load.Request("bench", "/")

// peer is a proxy that takes part.
type peer struct {
	name     string
	binary   string // name or path
	template string // of its configuration; "": all on the command line
	version  []string
	env      []string
	argv     func(binary, config string, m mode) []string
	takes    func(m mode) bool // nil: all modes
	moderate bool
}

// mode is how a proxy is to be set up; templates read it.
type mode struct {
	Dir, Listen, Origin string
	HTTP                string // where the sidecar's outbound listener goes: Listen, but in TCP mode
	Admin               string // the sidecar's admin API
	Log                 string // file of the JSON access log; "": none
	TCP                 bool
	HTTP2               bool // clients speak it, by prior knowledge
	OriginHTTP2         bool // the origin does
	Many                bool // many small messages on few connections of HTTP/2
	GRPC                bool
	Moderated           bool   // the sidecar has limits.moderate_reads
	Module              string // nginx's stream module where that is a file of its own
	Body                string // of the origin
	Origins             []string
	Governed            bool // all of governance is configured, and has nothing to do
}

// ListenPort is the port of Listen.
func (m mode) ListenPort() string { return portOf(m.Listen) }

// OriginPort is the port of Origin.
func (m mode) OriginPort() string { return portOf(m.Origin) }

func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

// allPeers lists who takes part, in the order of the tables. The ratios refer to nginx.
func allPeers(b *bench) []*peer {
	one := []string{"GOMAXPROCS=1"}
	return []*peer{
		{
			name: "sidecar", binary: filepath.Join(b.root, "bin/sidecar"), template: "sidecar.yaml", version: []string{"version"}, env: one,
			argv: func(binary, config string, _ mode) []string { return []string{binary, "run", "-c", config} },
		},
		{
			name: "sidecar-moderated", binary: filepath.Join(b.root, "bin/sidecar"), template: "sidecar.yaml", version: []string{"version"}, env: one,
			argv:     func(binary, config string, _ mode) []string { return []string{binary, "run", "-c", config} },
			moderate: true, takes: func(m mode) bool { return m.Many },
		},
		{
			name: "nginx", binary: "nginx", template: "nginx.conf", version: []string{"-v"},
			argv: func(binary, config string, m mode) []string {
				return []string{binary, "-p", m.Dir, "-e", filepath.Join(m.Dir, "nginx.err"), "-c", config}
			},
			takes: func(m mode) bool { return !m.OriginHTTP2 },
		},
		{
			name: "haproxy", binary: "haproxy", template: "haproxy.cfg", version: []string{"-v"},
			argv: func(binary, config string, _ mode) []string { return []string{binary, "-db", "-f", config} },
		},
		{
			name: "envoy", binary: filepath.Join(b.root, ".cache/envoy/envoy"), template: "envoy.yaml", version: []string{"--version"},
			argv: func(binary, config string, _ mode) []string {
				return []string{binary, "--concurrency", "1", "--disable-hot-restart", "--log-level", "error", "-c", config}
			},
		},
		{
			name: "nghttpx", binary: "nghttpx", version: []string{"--version"}, takes: func(m mode) bool { return m.HTTP2 },
			argv: func(binary, _ string, m mode) []string {
				host, port, _ := net.SplitHostPort(m.Listen)
				origin, originPort, _ := net.SplitHostPort(m.Origin)
				backend := origin + "," + originPort
				if m.OriginHTTP2 {
					backend += ";;proto=h2"
				}
				return []string{
					binary, "--conf=/dev/null", "--single-process", "--workers=1", "--log-level=ERROR",
					"--frontend=" + host + "," + port + ";no-tls", "--backend=" + backend,
				}
			},
		},
		{
			name: "net/http", binary: filepath.Join(b.dir, "reverseproxy"), env: one, takes: func(m mode) bool { return !m.HTTP2 },
			argv: func(binary, _ string, m mode) []string {
				argv := []string{binary, "-listen", m.Listen, "-to", m.Origin, "-log", m.Log}
				if m.TCP {
					argv = append(argv, "-tcp")
				}
				return argv
			},
		},
	}
}

// taking lists the peers that can be set up in a mode.
func (b *bench) taking(m mode) (all []*peer) {
	for _, p := range b.peers {
		if p.takes == nil || p.takes(m) {
			all = append(all, p)
		}
	}
	return all
}

// sidecar is the peer that this project is.
func (b *bench) sidecar() (*peer, error) {
	for _, p := range b.peers {
		if p.name == "sidecar" {
			return p, nil
		}
	}
	return nil, errors.New("needs the sidecar")
}

// present tells whether the peer can be started, building it first when it is ours.
func (p *peer) present(ctx context.Context, b *bench) error {
	if p.name == "net/http" {
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", p.binary, "./bench/reverseproxy")
		cmd.Dir = b.root
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	path, err := exec.LookPath(p.binary)
	p.binary = path
	return err
}

// start runs a peer in the given mode, with fresh memory, and waits until it serves.
func (b *bench) start(ctx context.Context, p *peer, m mode) (*process, error) {
	m.Dir, m.Listen, m.Admin, m.Moderated = b.dir, freeAddress(), freeAddress(), p.moderate
	if m.Origin == "" {
		m.Origin = b.origin.address
	}
	m.HTTP = m.Listen
	if m.TCP {
		m.HTTP = freeAddress()
		if module := "/usr/lib/nginx/modules/ngx_stream_module.so"; exists(module) {
			m.Module = module
		}
	}
	config, name := "", portOf(m.Listen)+"-"+p.template // the sidecar reads its file again when it changes
	if p.template != "" {
		text, err := render(p.template, m)
		if err != nil {
			return nil, err
		}
		config = filepath.Join(b.dir, name)
		if err := os.WriteFile(config, text, 0o644); err != nil {
			return nil, err
		}
	}
	to := ""
	if p.name == "haproxy" {
		to = m.Log
	}
	proc, err := b.spawn(proxyCore, name, to, p.env, p.argv(p.binary, config, m))
	if err != nil {
		return nil, err
	}
	proc.address, proc.admin = m.Listen, m.Admin
	switch {
	case m.TCP:
		err = proc.awaitTCP(ctx)
	case m.HTTP2:
		err = proc.awaitHTTP2(ctx)
	default:
		err = proc.awaitHTTP(ctx, plain)
	}
	if err != nil {
		proc.stop()
		return nil, err
	}
	return proc, nil
}

// startOrigin runs nginx as origin beside the load; over HTTP/2 it also has /bulk.
func (b *bench) startOrigin(ctx context.Context, listen string, http2 bool) (*process, error) {
	text, err := render("origin.conf", mode{Dir: b.dir, Listen: listen, Body: body, OriginHTTP2: http2})
	if err != nil {
		return nil, err
	}
	config := filepath.Join(b.dir, "origin-"+portOf(listen)+".conf")
	if err := os.WriteFile(config, text, 0o644); err != nil {
		return nil, err
	}
	errors := filepath.Join(b.dir, "origin.err")
	p, err := b.spawn(loadCore, "origin", "", nil, []string{"nginx", "-p", b.dir, "-e", errors, "-c", config})
	if err != nil {
		return nil, err
	}
	p.address = "127.0.0.1:" + portOf(listen)
	if http2 {
		err = p.awaitHTTP2(ctx)
	} else {
		err = p.awaitHTTP(ctx, plain)
	}
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("origin: %w", err)
	}
	return p, nil
}

func render(name string, m mode) ([]byte, error) {
	t, err := template.New(name+".tmpl").Funcs(template.FuncMap{"port": freeAddress}).ParseFS(templateFiles, "templates/"+name+".tmpl")
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = t.Execute(&out, m)
	return out.Bytes(), err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
