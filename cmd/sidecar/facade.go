package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery/consul"
)

func configServe() *cobra.Command {
	var s store
	var listen string
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve groups of keys and values over HTTP, as older config centres do",
		Long: `Serve /config/service?action=register|unregister|lookup|getSign over keys of Consul, PREFIX GROUP/KEY, for programs that
speak that. group, key and value are parameters of the query or of a form. getSign answers a word that is another one once
anything in the group has changed. Whoever reaches the address may write: it is on loopback unless you say otherwise.`,
		Example: "  sidecar config serve --consul 127.0.0.1:8500 --prefix mesh/\n" +
			"  curl -d 'group=global.property&key=reload.locations&value=/data1/reload.properties' 'http://127.0.0.1:15080/config/service?action=register'",
		Args: takes(),
		RunE: func(c *cobra.Command, _ []string) error {
			return s.with(c, func(ctx context.Context, kv *consul.KV, _ *config.Config) error {
				l, err := net.Listen("tcp", listen)
				if err != nil {
					return err
				}
				fmt.Fprintf(c.OutOrStdout(), "serving on http://%s/config/service\n", l.Addr())
				return serveUntil(ctx, l, facade(kv))
			})
		},
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:15080", "`address` to serve on")
	return s.flags(c)
}

// serveUntil serves until ctx ends.
func serveUntil(ctx context.Context, l net.Listener, h http.Handler) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: patience, ReadTimeout: patience, WriteTimeout: time.Minute, IdleTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// facade answers the four actions (S-197 … S-200).
func facade(kv *consul.KV) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/config/service", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Origin") != "" {
			http.Error(w, "not for pages in a browser", http.StatusForbidden)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxDocument)
		if err := r.ParseForm(); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		status, text := act(r.Context(), kv, r)
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	})
	return mux
}

// act does what a request asks for.
func act(ctx context.Context, kv *consul.KV, r *http.Request) (status int, text string) {
	action, group, key := r.URL.Query().Get("action"), r.Form.Get("group"), r.Form.Get("key")
	writes := action == "register" || action == "unregister"
	switch {
	case group == "" || strings.Contains(group, "/"):
		return http.StatusBadRequest, "group is a name without slashes\n"
	case action != "getSign" && (key == "" || strings.HasSuffix(key, "/")):
		return http.StatusBadRequest, "key is missing\n"
	case writes && r.Method != http.MethodPost:
		return http.StatusMethodNotAllowed, "a change is a POST\n"
	}
	kv = kv.Below(group)
	var err error
	switch action {
	case "register":
		if err = kv.Put(ctx, key, []byte(r.Form.Get("value")), nil); err == nil {
			return http.StatusOK, "ok\n"
		}
	case "unregister":
		if err = kv.Delete(ctx, key, nil); err == nil {
			return http.StatusOK, "ok\n"
		}
	case "lookup":
		var doc *config.Document
		if doc, err = kv.Get(ctx, key); err == nil {
			if doc == nil {
				return http.StatusNotFound, "there is no such key\n"
			}
			return http.StatusOK, string(doc.Data)
		}
	case "getSign":
		var docs []config.Document
		if docs, err = kv.List(ctx); err == nil {
			return http.StatusOK, sign(docs) + "\n"
		}
	default:
		return http.StatusBadRequest, "action is register, unregister, lookup or getSign\n"
	}
	return http.StatusBadGateway, err.Error() + "\n"
}

// sign is a word for the state of a group.
func sign(docs []config.Document) string {
	h := fnv.New64a()
	for _, d := range docs {
		fmt.Fprintf(h, "%q %d\n", d.Name, d.Revision)
	}
	return strconv.FormatUint(h.Sum64(), 16)
}
