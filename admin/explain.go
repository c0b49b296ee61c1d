package admin

import (
	"net/http"
	"net/netip"

	"github.com/sidecar-mesh/sidecar/explain"
)

// explain answers what would become of a request: ?url= and, if need be, method=, header= (NAME: VALUE, any number),
// direction=inbound, caller=, address= (of the caller), service= (at whose own port it comes in).
func (a *api) explain(w http.ResponseWriter, r *http.Request) {
	s := a.process.Snapshot()
	if s == nil {
		starting(w, r)
		return
	}
	q, problemText := question(r)
	if problemText != "" {
		refuse(w, r, problem{Status: http.StatusBadRequest, Title: "bad parameter", Detail: problemText})
		return
	}
	e, err := explain.Explain(s, q, a.now())
	if err != nil {
		refuse(w, r, problem{Status: http.StatusBadRequest, Title: "bad parameter", Detail: err.Error()})
		return
	}
	answer(w, http.StatusOK, e)
}

// question reads the parameters; the text says what is wrong with them.
func question(r *http.Request) (q explain.Request, wrong string) {
	values := r.URL.Query()
	for name := range values {
		switch name {
		case "url", "method", "header", "direction", "caller", "address", "service":
		default:
			return q, name + ": unknown; there is: url method header direction caller address service"
		}
	}
	q = explain.Request{
		Method: values.Get("method"), URL: values.Get("url"), Service: values.Get("service"),
		Caller: values.Get("caller"),
	}
	if q.URL == "" {
		return q, "url: missing, like /explain?url=http://catalog/items"
	}
	for _, h := range values["header"] {
		field, err := explain.ParseHeader(h)
		if err != nil {
			return q, "header: " + err.Error()
		}
		q.Header = append(q.Header, field)
	}
	switch values.Get("direction") {
	case "", "outbound":
	case "inbound":
		q.Inbound = true
	default:
		return q, "direction: outbound or inbound is expected"
	}
	if text := values.Get("address"); text != "" {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return q, "address: an IP address is expected"
		}
		q.Address = addr
	}
	return q, ""
}
