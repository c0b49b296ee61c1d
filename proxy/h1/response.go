package h1

import (
	"strings"

	"github.com/sidecar-mesh/sidecar/proxy/grammar"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
)

// parseResponse parses a whole response head into r and f; fields are appended to r.Fields. method is that of the request.
func parseResponse(r *pipeline.Response, f *framing, head []byte, lim headLimits, method string) error {
	line, rest, err := cutLine(head)
	if err != nil {
		return err
	}
	if err := parseStatusLine(r, f, line); err != nil {
		return err
	}
	if r.Fields, err = parseFields(r.Fields, rest, lim.count); err != nil {
		return err
	}
	return judgeResponse(r, f, method)
}

// parseStatusLine reads "HTTP/1.x nnn reason" (RFC 9112 4); servers that leave out the space before an empty reason are
// common enough to be understood.
func parseStatusLine(r *pipeline.Response, f *framing, line []byte) error {
	if len(line) < 12 || line[8] != ' ' || len(line) > 12 && line[12] != ' ' {
		return errStatusLine
	}
	minor, err := parseVersion(str(line[:8]))
	if err != nil {
		return err
	}
	f.minor = minor
	d := line[9:12]
	for _, c := range d {
		if !grammar.Is(c, grammar.Digit) {
			return errStatus
		}
	}
	r.Status = int(d[0]-'0')*100 + int(d[1]-'0')*10 + int(d[2]-'0')
	if r.Status < 100 {
		return errStatus
	}
	r.Reason = ""
	if len(line) > 13 {
		if !grammar.ValidValue(line[13:]) {
			return errStatusLine
		}
		r.Reason = str(line[13:])
	}
	return nil
}

// judgeResponse works out framing and hop-by-hop fields of a parsed response head.
func judgeResponse(r *pipeline.Response, f *framing, method string) error {
	bodiless := r.Status < 200 || r.Status == 204 || r.Status == 304
	mark := ""
	// A response that has no body by its status may carry faulty framing without harm: it is ignored.
	for i := range r.Fields {
		fd := &r.Fields[i]
		switch fd.ID {
		case pipeline.FieldOther, pipeline.FieldContentType:
		case pipeline.FieldUpgrade:
			fd.Drop = r.Status != 101 && r.Status != 426
		case pipeline.FieldProxyAuthenticate:
		case pipeline.FieldOffline:
			fd.Drop, mark = true, fd.Value
		default:
			err := f.field(fd)
			if err != nil && (!bodiless || fd.ID == pipeline.FieldConnection || f.lengthTwin) {
				return err
			}
		}
	}
	if f.hasCoding && (bodiless || f.minor == 0) {
		f.close = true // such framing is faulty (RFC 9112 6.1): what follows cannot be trusted
	}
	if !bodiless {
		if err := f.settle(); err != nil {
			return err
		}
	}
	if f.names {
		if mark != "" && f.close && named(r.Fields, "x-sidecar-offline") {
			r.Offline = pipeline.OfflineTime(mark)
		}
		dropNamed(r.Fields)
	}
	r.NoBody = bodiless || method == "HEAD"
	r.KeepLength = f.hasLength && (method == "HEAD" || r.Status == 304)
	switch {
	case r.NoBody:
		r.Length = 0
	case f.chunked:
		r.Length = pipeline.LengthUnknown
	case f.hasLength:
		r.Length = f.length
	default:
		r.Length = pipeline.LengthUnknown
		f.close = true // its end is the end of the connection
	}
	return nil
}

// switchedTo reports whether a 101 answers to what was offered.
func switchedTo(offered string, fields []pipeline.Field) bool {
	for i := range fields {
		if fields[i].ID != pipeline.FieldUpgrade || fields[i].Value == "" {
			continue
		}
		var item string
		for rest, more := fields[i].Value, true; more; {
			item, rest, more = grammar.NextItem(rest)
			if !offeredHas(offered, item) {
				return false
			}
		}
		return true
	}
	return false
}

func offeredHas(offered, name string) bool {
	var item string
	for rest, more := offered, true; more; {
		item, rest, more = grammar.NextItem(rest)
		if strings.EqualFold(item, name) {
			return true
		}
	}
	return false
}
