package admin

import (
	"bytes"
	"encoding/json"

	"github.com/sidecar-mesh/sidecar/config"
)

// Published writes the document by which a provider tells its callers how to call a service: the policy it has for it and,
// where methods are wanted too, those of its routes. It is nil where there is nothing to tell.
func Published(in *config.Inbound, methods bool) ([]byte, error) {
	o := object{}
	putPart(o, "policy", published(&in.Policy))
	var routes []object
	for _, r := range in.Routes {
		if p := published(&r.Policy); methods && len(p) > 0 {
			routes = append(routes, object{"name": r.Name, "match": matchDocument(&r.Match), "policy": p})
		}
	}
	putList(o, "routes", routes)
	if len(o) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(o)
	return bytes.ReplaceAll(text, []byte("${"), []byte("$${")), err
}

// published is a policy without the name of another one, which means nothing to callers.
func published(p *config.Policy) object {
	o := policyDocument(p)
	delete(o, "use")
	return o
}
