package admin

import "github.com/sidecar-mesh/sidecar/config"

// putGRPCWeb writes who may call from a browser.
func putGRPCWeb(o object, w *config.GRPCWeb) {
	if w.Off.Value {
		o["grpc_web"] = "none"
		return
	}
	v := object{}
	putList(v, "origins", w.Origins)
	putOpt(v, "credentials", w.Credentials, same[bool])
	putOpt(v, "max_age", w.MaxAge, config.Span)
	putPart(o, "grpc_web", v)
}
