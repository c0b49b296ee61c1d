package pipeline

import (
	"strconv"
	"time"

	"github.com/sidecar-mesh/sidecar/balance"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// OfflineName is the field by which an endpoint says that it leaves and wants no more requests (S-230). Its value is the
// number of seconds until it is gone. It is about one hop: on HTTP/1 the Connection field names it, so that whoever passes
// the answer on takes it out (RFC 9110 7.6.1), on HTTP/2 it counts only behind a GOAWAY of the same connection. No
// engine sends it on, whoever it came from.
const OfflineName = "X-Sidecar-Offline"

const lowOffline = "x-sidecar-offline"

const (
	defaultOffline = time.Minute      // where the value is no number
	maxOffline     = 10 * time.Minute // so long a mark keeps an endpoint out at most
)

// OfflineTime reads the value of the mark.
func OfflineTime(value string) time.Duration {
	n, err := strconv.ParseUint(value, 10, 32)
	if err != nil {
		return defaultOffline
	}
	return min(max(time.Duration(n)*time.Second, time.Second), maxOffline)
}

// AppendOfflineValue adds the value of a mark: whole seconds from now until gone, at least one.
func AppendOfflineValue(b []byte, gone, now time.Time) []byte {
	left := int64((gone.Sub(now) + time.Second - 1) / time.Second)
	return strconv.AppendInt(b, max(1, left), 10)
}

// leaver is an Upstream over a connection that its peer may have announced the end of.
type leaver interface{ PeerLeaves() bool }

// noticed looks for the mark on the head of an answer. Only the calls of our app look for endpoints: what our app itself
// says about the matter is nobody's business.
func (x *Exchange) noticed() {
	if x.p.Direction != telemetry.Outbound {
		return
	}
	if x.resp.Offline > 0 {
		x.ep.Meter.State.Or(balance.StateDraining)
		x.p.Observer.Offline(x.ep, x.Clock.Add(x.resp.Offline))
		return
	}
	// It answers as if nothing were: another process, or the same one after all. An attempt that began before the mark
	// came tells nothing; the observer knows.
	x.p.Observer.Online(x.ep, x.began)
}

// noticedBehind looks for the mark in trailers: an answer that began before its endpoint knew that it leaves.
func (x *Exchange) noticedBehind(trailers []Field) {
	for i := range trailers {
		if trailers[i].ID != FieldOffline || x.p.Direction != telemetry.Outbound {
			continue
		}
		if l, ok := x.up.(leaver); ok && l.PeerLeaves() {
			x.ep.Meter.State.Or(balance.StateDraining)
			x.p.Observer.Offline(x.ep, x.Clock.Add(OfflineTime(trailers[i].Value)))
		}
	}
}
