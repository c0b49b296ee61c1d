package archtest

import "strings"

// layers says which packages of ours the non-test files of a package may import. A pattern ends in "/*" for what is
// directly below a folder; an exact key wins over a pattern. Entries may be ahead of the code.
var layers = map[string]string{
	"route":         "",
	"balance":       "",
	"resilience":    "",
	"config":        "",
	"proxy/sniff":   "",
	"proxy/grammar": "",
	"proxy/grpcweb": "",
	"proxy/netio":   "",
	"route/rules":   "",
	"snapshot":      "config route route/rules balance resilience",
	"explain":       "snapshot route route/rules balance resilience config",
	"simulate":      "snapshot route balance resilience config discovery/guard",
	"hystrix":       "",
	"script":        "route",
	"telemetry":     "route balance resilience",

	"discovery/guard": "config",
	"discovery":       "config discovery/guard",
	"discovery/file":  "config discovery discovery/watch",
	"discovery/*":     "config discovery",
	"xds":             "config discovery",

	"discovery/registration": "",
	"discovery/lease":        "",
	"discovery/registrar":    "config discovery/registration",
	"discovery/consul":       "config discovery discovery/registration discovery/lease",

	"proxy/pipeline": "snapshot route route/rules balance resilience telemetry proxy/netio proxy/grpcweb",
	"proxy/upstream": "snapshot proxy/netio proxy/pipeline",
	"proxy/h1":       "proxy/grammar proxy/pipeline proxy/upstream proxy/netio snapshot telemetry",
	"proxy/h2":       "proxy/grammar proxy/pipeline proxy/upstream proxy/netio snapshot telemetry",
	"proxy/tcp":      "proxy/pipeline proxy/upstream proxy/netio snapshot telemetry",
	"proxy":          "proxy/* snapshot route config intercept telemetry resilience",

	"admin":           "snapshot config telemetry explain",
	"intercept/rules": "",
	"intercept":       "config intercept/rules",
	"inject/patch":    "",
	"inject":          "config inject/patch",
	"cmd/sidecar":     "*",

	"internal/*":        "",
	"internal/demo":     "config discovery proxy telemetry",
	"internal/meshtest": "config snapshot resilience telemetry internal/loopback",
	"bench":             "bench/* internal/loopback",
	"bench/*":           "",
	"e2e/*":             "e2e/* internal/*",
}

// pure packages decide and do nothing else: time and randomness come in as arguments, nothing blocks, logs or counts.
var pure = strings.Fields(`hystrix route route/rules balance resilience snapshot explain simulate proxy/sniff proxy/grammar proxy/grpcweb discovery/guard
	discovery/registration discovery/lease intercept/rules inject/patch`)

// worldly imports are none of a pure package's business, with everything below them.
var worldly = strings.Fields(`context crypto/rand embed expvar io/ioutil log math/rand net os plugin runtime/metrics
	runtime/pprof runtime/trace syscall testing github.com/prometheus go.opentelemetry.io golang.org/x/sys
	golang.org/x/time go.uber.org/ratelimit`)

// harmless imports are allowed although they are below a worldly one.
var harmless = []string{"net/netip"}

// worldlyNames are the names of otherwise harmless packages that read the clock or block.
var worldlyNames = map[string][]string{
	"time": strings.Fields("Now Since Until Sleep After AfterFunc Tick NewTimer NewTicker Timer Ticker"),
	"sync": strings.Fields("WaitGroup Cond NewCond"),
}

// borders says which packages of ours may use a third-party module: its types go no further. "test" stands for test
// files anywhere.
var borders = map[string]string{
	"github.com/prometheus":                  "telemetry",
	"go.opentelemetry.io":                    "telemetry",
	"github.com/openzipkin":                  "telemetry",
	"go.yaml.in/yaml":                        "config discovery/file simulate",
	"gopkg.in/yaml":                          "",
	"github.com/goccy/go-yaml":               "config discovery/file",
	"github.com/miekg/dns":                   "discovery/dns",
	"github.com/fsnotify/fsnotify":           "discovery/*",
	"github.com/hashicorp/consul":            "discovery/consul",
	"github.com/envoyproxy/go-control-plane": "xds",
	"github.com/cncf/xds":                    "xds",
	"google.golang.org/protobuf":             "xds",
	"google.golang.org/grpc":                 "xds",
	"github.com/spf13/cobra":                 "cmd/sidecar",
	"github.com/spf13/pflag":                 "cmd/sidecar",
	"github.com/google/nftables":             "intercept",
	"github.com/cloudflare/tableflip":        "cmd/sidecar proxy",
	"github.com/dop251/goja":                 "script",
	"k8s.io":                                 "inject",
	"golang.org/x/net/http2":                 "proxy/h2 bench/load e2e/sidecartest",
	"github.com/google/go-cmp":               "internal/*",
	"go.uber.org/goleak":                     "internal/*",
}

// testOnly are the borders that test files of any package may cross.
var testOnly = strings.Fields(`github.com/google/go-cmp go.uber.org/goleak golang.org/x/net/http2 google.golang.org/grpc
	github.com/miekg/dns`)

// emptyNames say nothing about what a package is for.
var emptyNames = strings.Fields("util utils common types core base helper helpers manager misc shared lib")
