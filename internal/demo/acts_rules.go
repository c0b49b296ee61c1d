package demo

import (
	"context"
	"fmt"
	"strings"

	"github.com/sidecar-mesh/sidecar/telemetry"
)

// greyUser tells which users see the new version first.
func greyUser(n int) bool { return n%20 == 3 }

// someAreGrey shows a grey release and its rollback.
func (s *stage) someAreGrey(ctx context.Context) {
	s.act("8. A release for some users first")
	s.say("the new version takes only the users whose number, divided by 20, leaves 3; nobody else meets it")
	s.quote(added(s.document(), s.withGrey(true)))
	s.agreed(ctx, "catalog")
	err := s.reload(ctx, s.withGrey(true))
	s.gone = uint64(s.app.count("catalog")) - s.counters("catalog").Requests
	s.claim(err == nil, "it is in force, and with the old routes go their counts of %d calls%s", s.gone, trouble(err))
	wrong, grey := 0, 0
	ask := func(users int) {
		wrong, grey = 0, 0
		for n := range users {
			a := s.app.call(ctx, "catalog", fmt.Sprintf("/items/%d", n))
			is := a.toy == s.canary.name
			if a.failed() || is != greyUser(n) {
				wrong++
			}
			if is {
				grey++
			}
		}
	}
	ask(200)
	s.claim(wrong == 0 && grey == 10, "200 users call: %d of them reach the new version, and each the one that is theirs: %d wrong", grey, wrong)
	s.say("its endpoint is killed: the calls of these users fall back to the version that all others have")
	s.canary.kill()
	t := s.app.burst(ctx, "catalog", "/items/3", 50)
	s.claim(t.failed == 0 && t.toys[s.canary.name] == 0, "of 50 calls of such a user %d failed", t.failed)
	if err := s.canary.start(ctx); err != nil {
		s.claim(false, "%s can be started again: %v", s.canary.name, err)
		return
	}
	s.say("the release is taken back by one word: enabled: false")
	err = s.reload(ctx, s.withGrey(false))
	ask(100)
	s.claim(err == nil && grey == 0 && wrong == 5, "of 100 users %d reach the new version%s", grey, trouble(err))
}

// agreed waits until the proxy has counted all calls of a service that the app made.
func (s *stage) agreed(ctx context.Context, service string) bool {
	return until(ctx, patience, func() bool {
		n := s.counters(service).Requests
		if service == "catalog" {
			n += s.gone
		}
		return n == uint64(s.app.count(service))
	})
}

// aRoomIsSwitched shows a group switch, there and back.
func (s *stage) aRoomIsSwitched(ctx context.Context) {
	s.act("9. A room is switched away")
	room, others := s.catalog[0], s.catalog[1:]
	err := s.reload(ctx, s.withRooms(""))
	s.claim(err == nil, "the catalog has two rooms, bj and sh, and is called in bj%s", trouble(err))
	load := s.app.steady(ctx, "catalog", itemPath)
	defer load.end()
	s.settle(ctx, load)
	load.take()
	until(ctx, patience, func() bool { return load.calls() > 100 })
	t := load.take()
	s.claim(t.failed == 0 && t.toys[room.name] == t.calls, "so all calls go to %s: %s", room.name, shares(t, s.catalog))
	was := s.withRooms("")
	away := s.withRooms("groups: [{service: \"*\", from: bj, to: sh}]\n")
	s.say("bj is on fire. One entry moves all sidecars that read it:")
	s.quote(strings.TrimSpace(added(was, away)))
	err = s.reload(ctx, away)
	_, told := s.happened(s.start, func(e telemetry.Event) bool { return e.Kind == telemetry.EventGroup && e.From == "bj" && e.To == "sh" })
	s.claim(err == nil && told, "it is in force, and an event%s", trouble(err))
	s.settle(ctx, load)
	moved := load.take()
	until(ctx, patience, func() bool { return load.calls() > 200 })
	t = load.take()
	s.claim(t.failed+moved.failed == 0 && t.toys[room.name] == 0, "calls go to sh, none to bj and none is lost: %s, %d failed %s", shares(t, others), t.failed+moved.failed, reasons(moved))
	err = s.reload(ctx, was)
	s.settle(ctx, load)
	load.take()
	until(ctx, patience, func() bool { return load.calls() > 100 })
	t = load.end()
	s.claim(err == nil && t.failed == 0 && t.toys[room.name] == t.calls, "the entry is taken out, and all is as before: %s%s", shares(t, s.catalog), trouble(err))
}
