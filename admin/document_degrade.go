package admin

import (
	"encoding/base64"
	"unicode/utf8"

	"github.com/sidecar-mesh/sidecar/config"
)

func switchDocument(w *config.Switch) object {
	o := object{"service": w.Service, "level": w.Level, "mode": w.Mode}
	put(o, "route", w.Route)
	put(o, "description", w.Description)
	put(o, "owner", w.Owner)
	put(o, "reason", w.Reason)
	putOpt(o, "enabled", w.Enabled, same[bool])
	if a := w.Auto; a != nil {
		o["auto"] = object{
			"when":  object{"error_ratio": a.When.ErrorRatio, "for": config.Span(a.When.For)},
			"until": object{"error_ratio": a.Until.ErrorRatio, "for": config.Span(a.Until.For)},
			"ramp":  config.Span(a.Ramp),
		}
	}
	putStandIn(o, &w.Answer)
	return o
}

// fallbackDocument is none, or a map.
func fallbackDocument(f config.Fallback) any {
	if f.Answer.Kind == "" {
		return "none"
	}
	o := object{"when": f.When}
	putStandIn(o, &f.Answer)
	return o
}

// putStandIn writes what is answered under the key of its kind.
func putStandIn(o object, s *config.StandIn) {
	v := object{}
	switch s.Kind {
	case config.KindLocal:
		o[s.Kind] = s.Local
		return
	case config.KindStale:
		o[s.Kind] = config.Span(s.Stale)
		return
	case config.KindAnswer:
		if len(s.Headers) > 0 {
			v["headers"] = headersDocument(s.Headers)
		}
		if utf8.ValidString(s.Body) {
			put(v, "body", s.Body)
		} else {
			v["body_base64"] = base64.StdEncoding.EncodeToString([]byte(s.Body))
		}
		put(v, "template", s.Template)
	case config.KindError:
		put(v, "grpc", s.GRPC)
		put(v, "message", s.Message)
	}
	v["status"] = s.Status
	o[s.Kind] = v
}
