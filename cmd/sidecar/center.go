package main

import (
	"context"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery/consul"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

// centerName is how the config centre is called among the sources.
const centerName = "config_center"

// emptyHold is how long a config centre that had documents must have none before that is believed: a store that was lost
// looks like one that was emptied.
const emptyHold = 30 * time.Second

// center follows the documents of the config centre. All but the watch is owned by the reloader's goroutine.
type center struct {
	p      *process
	keeper *config.Center
	news   chan []config.Document // all documents as they are now; the newest waits

	watched centerPlace
	stop    func() // of the watch; nil: none runs
	told    map[string]uint64
}

// centerPlace is what is watched.
type centerPlace struct {
	registry *config.Registry
	prefix   string
}

func newCenter(p *process) *center {
	return &center{p: p, keeper: config.NewCenter(os.LookupEnv), news: make(chan []config.Document, 1), told: map[string]uint64{}}
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
	if kv == nil {
		c.keeper.Set(nil)
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		defer kv.Close()
		c.watch(ctx, kv)
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

// watch passes on what the store says, until ctx ends.
func (c *center) watch(ctx context.Context, kv *consul.KV) {
	source := c.p.rec.Source(centerName)
	had := false
	var doubt *time.Timer // runs while an empty store is not believed
	kv.Watch(ctx, func(docs []config.Document) {
		source.Updated()
		if doubt != nil {
			doubt.Stop()
			doubt = nil
		}
		if len(docs) == 0 && had {
			c.p.log.Warn("the config centre is empty at once; its documents stay for a while", "hold", emptyHold)
			doubt = time.AfterFunc(emptyHold, func() { c.tell(ctx, docs) })
			return
		}
		had = len(docs) > 0
		c.tell(ctx, docs)
	}, func(err error) { source.Failed(err.Error()) })
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

// first waits for the first answer, but not for long: what the files say is served without it.
func (c *center) first(ctx context.Context, within time.Duration) {
	if c.stop == nil {
		return
	}
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case docs := <-c.news:
		c.keeper.Set(docs)
	case <-t.C:
		c.p.log.Warn("the config centre has not answered yet; starting without its documents", "after", within)
	case <-ctx.Done():
	}
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
	c.p.rec.Documents(good, kept, refused)
}
