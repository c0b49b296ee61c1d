package main

import (
	"context"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/sidecar-mesh/sidecar/admin"
	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery/consul"
	"github.com/sidecar-mesh/sidecar/snapshot"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// centerName is how the config centre is called among the sources.
const centerName = "config_center"

// emptyHold is how long a config centre that had documents must have none before that is believed, unless they were seen to
// be deleted: a store that was lost looks like one that was emptied.
const emptyHold = 30 * time.Second

// center follows the documents of the config centre. All but the watch is owned by the reloader's goroutine.
type center struct {
	p      *process
	keeper *config.Center
	news   chan []config.Document // all documents as they are now; the newest waits
	failed chan struct{}          // told once of a failure

	watched centerPlace
	stop    func() // of the watch; nil: none runs
	told    map[string]uint64
	began   bool      // the process has a configuration
	heard   bool      // the store has answered
	saved   time.Time // when the documents in force were kept on disk, until the store answers; zero: it has
}

// centerPlace is what is watched.
type centerPlace struct {
	registry *config.Registry
	prefix   string
}

func newCenter(p *process) *center {
	return &center{p: p, keeper: config.NewCenter(os.LookupEnv), news: make(chan []config.Document, 1), failed: make(chan struct{}, 1), told: map[string]uint64{}}
}

// follow watches what a configuration names, instead of what was watched before.
func (c *center) follow(ctx context.Context, cfg *config.Config) error {
	var place centerPlace
	if k := cfg.Center; k != nil && k.Consul != nil {
		place = centerPlace{registry: cfg.Registries[k.Consul.Registry], prefix: k.Consul.Prefix}
	}
	if samePlace(c.watched, place) {
		return nil
	}
	var kv *consul.KV
	if place.registry != nil {
		var err error
		if kv, err = consul.NewKV(place.registry, place.prefix); err != nil {
			return err
		}
	}
	c.close()
	c.watched = place
	c.saved, c.heard = time.Time{}, false
	if kv == nil {
		c.p.rec.SourceClosed(centerName)
		c.keeper.Set(nil)
		return nil
	}
	if !c.began {
		c.recall()
	}
	had := !c.saved.IsZero()
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		defer kv.Close()
		c.watch(ctx, kv, had)
	})
	c.stop = func() {
		cancel()
		watch.Wait()
	}
	return nil
}

// samePlace reports whether two places are one: where a registry is written does not matter.
func samePlace(a, b centerPlace) bool {
	if a.prefix != b.prefix || (a.registry == nil) != (b.registry == nil) {
		return false
	}
	return a.registry == nil || a.registry.Name == b.registry.Name && reflect.DeepEqual(a.registry.Consul, b.registry.Consul)
}

// close ends the watch.
func (c *center) close() {
	if c.stop != nil {
		c.stop()
		c.stop = nil
	}
}

// recall takes the documents that an earlier run had in force, until the store answers (S-22).
func (c *center) recall() {
	docs, saved, err := c.p.disk.LoadDocuments(c.watched.registry, c.watched.prefix)
	if err != nil {
		c.p.rec.SnapshotFailed()
		c.p.rec.Events().Add(telemetry.Event{Kind: telemetry.EventSnapshot, To: "failing", By: centerName, Detail: err.Error()})
	}
	if len(docs) == 0 {
		return
	}
	c.keeper.Restore(docs)
	c.saved = saved
}

// set takes the documents of the store, and reports whether something is to be put in force.
func (c *center) set(docs []config.Document) bool {
	changed := c.keeper.Set(docs)
	c.heard = true
	if !c.saved.IsZero() {
		c.saved, changed = time.Time{}, true
	}
	return changed
}

// watch passes on what the store says, until ctx ends. had says that there are documents in force.
func (c *center) watch(ctx context.Context, kv *consul.KV, had bool) {
	source := c.p.rec.Source(centerName)
	var doubt *time.Timer // runs while an empty store is not believed
	kv.Watch(ctx, func(docs []config.Document, continued bool) {
		source.Updated()
		source.Well()
		if doubt != nil {
			doubt.Stop()
			doubt = nil
		}
		if len(docs) == 0 && had && !continued {
			c.p.log.Warn("the config centre is empty at once; its documents stay for a while", "hold", emptyHold)
			doubt = time.AfterFunc(emptyHold, func() { c.tell(ctx, docs) })
			return
		}
		had = len(docs) > 0
		c.tell(ctx, docs)
	}, func(err error) {
		source.Failed(failureReason(err), err.Error())
		select {
		case c.failed <- struct{}{}:
		default:
		}
	})
	if doubt != nil {
		doubt.Stop()
	}
}

// tell puts the documents in the place of those that wait.
func (c *center) tell(ctx context.Context, docs []config.Document) {
	for ctx.Err() == nil {
		select {
		case c.news <- docs:
			return
		default:
		}
		select {
		case <-c.news:
		default:
		}
	}
}

// first waits for the first answer, but not for long: what the files say is served without it, and with what the disk says not
// even a failure is repeated.
func (c *center) first(ctx context.Context, within time.Duration) {
	c.began = true
	if c.stop == nil {
		return
	}
	failed := c.failed
	if c.saved.IsZero() {
		failed = nil
	}
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case docs := <-c.news:
		c.set(docs)
		return
	case <-failed:
	case <-t.C:
	case <-ctx.Done():
		return
	}
	if c.saved.IsZero() {
		c.p.log.Warn("the config centre has not answered yet; starting without its documents", "after", within)
		return
	}
	c.p.rec.Events().Add(telemetry.Event{
		Kind: telemetry.EventSnapshot, To: "holding", By: centerName,
		Detail: "the config centre does not answer; its documents are those of the disk, kept at " + c.saved.UTC().Format(time.RFC3339),
	})
}

// compose merges what the files say with the documents. A document that cannot be merged or compiled is left out.
func (c *center) compose(files *config.Config) (*config.Config, error) {
	if files.Center == nil {
		return files, nil
	}
	for {
		merged, err := c.keeper.Merge(files)
		if err != nil {
			return nil, err
		}
		if _, err = snapshot.Compile(fixed(merged), nil, snapshot.Options{}); err == nil {
			return merged, nil
		}
		if !c.keeper.Refuse(err) {
			return nil, err
		}
	}
}

// accepted notes that the last composition is in force, and tells of documents that went wrong since.
func (c *center) accepted() {
	c.keeper.Accept()
	if c.stop != nil && c.saved.IsZero() && c.heard {
		c.p.disk.SaveDocuments(c.watched.registry, c.watched.prefix, c.keeper.Good())
	}
	var good, kept, refused int
	for _, d := range c.keeper.States() {
		switch {
		case d.InForce:
			good++
		case d.Kept:
			kept++
		default:
			refused++
		}
		if d.InForce {
			delete(c.told, d.Name)
			continue
		}
		if c.told[d.Name] == d.Revision {
			continue
		}
		c.told[d.Name] = d.Revision
		lines := make([]string, len(d.Errors))
		for i := range d.Errors {
			lines[i] = d.Errors[i].Error()
		}
		text := strings.Join(lines, "; ")
		c.p.log.Warn("a document of the config centre was refused", "document", d.Name, "revision", d.Revision, "earlier_version_in_force", d.Kept, "err", text)
		c.p.rec.DocumentRefused(text)
	}
	c.p.rec.Documents(telemetry.Documents{InForce: good, Kept: kept, Refused: refused, Stale: !c.saved.IsZero()})
}

// shown is the config centre as the admin API has it; nil: none is followed.
func (c *center) shown() *admin.Center {
	if c.watched.registry == nil {
		return nil
	}
	v := &admin.Center{
		Source: "kv " + c.watched.registry.Name + ":" + c.watched.prefix, Heard: c.heard, Documents: []admin.Document{},
	}
	if !c.saved.IsZero() {
		v.Restored = &c.saved
	}
	for _, d := range c.keeper.States() {
		one := admin.Document{Name: d.Name, Revision: d.Revision, State: "refused"}
		switch {
		case d.InForce && v.Restored != nil:
			one.State = "restored"
		case d.InForce:
			one.State = "in_force"
		case d.Kept:
			one.State = "kept"
		}
		for i := range d.Errors {
			one.Errors = append(one.Errors, d.Errors[i].Error())
		}
		v.Documents = append(v.Documents, one)
	}
	return v
}
