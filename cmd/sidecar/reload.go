package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sidecar-mesh/sidecar/admin"
	"github.com/sidecar-mesh/sidecar/config"
)

// eventText is how much of a text an event holds; what is longer gets a line of its own in the log.
const eventText = 1024

// reloader puts what the files say in force, one attempt after the other. A configuration is taken as a whole or refused
// as a whole: then everything stays as it was, and metric, event, log and admin API say why.
type reloader struct {
	p     *process
	paths []string
	asked chan string // what asked; one waits at most

	busy atomic.Bool // an attempt is under way: it reports its own failure

	mu      sync.Mutex
	reloads admin.Reloads  // guarded by mu
	shown   *admin.Center  // guarded by mu
	files   *config.Config // as read last, owned by run
	current *config.Config // in force, owned by run
	center  *center        // owned by run
}

func newReloader(p *process, paths []string, cfg *config.Config) *reloader {
	return &reloader{
		p: p, paths: paths, files: cfg, current: cfg, center: newCenter(p), asked: make(chan string, 1),
		reloads: admin.Reloads{Loaded: admin.Reload{Time: time.Now(), Trigger: "start", Sources: paths}},
	}
}

// ask asks for a reload. What is asked for while one waits is covered by that.
func (r *reloader) ask(trigger string) {
	select {
	case r.asked <- trigger:
	default:
	}
}

// begin returns what is to be in force first: what the files say and, if it answers soon, the config centre.
func (r *reloader) begin(ctx context.Context) (*config.Config, error) {
	if err := r.center.follow(ctx, r.files); err != nil {
		return nil, err
	}
	r.center.first(ctx, min(firstDocuments, r.files.Discovery.ReadyWait))
	cfg, err := r.center.compose(r.files)
	if err != nil {
		return nil, err
	}
	r.accepted()
	r.current = cfg
	return cfg, nil
}

// firstDocuments is how long the start waits for the config centre.
const firstDocuments = time.Second

// run serves what is asked for, and what the config centre says, until ctx ends.
func (r *reloader) run(ctx context.Context) {
	defer r.center.close()
	for {
		select {
		case <-ctx.Done():
			return
		case docs := <-r.center.news:
			if r.center.set(docs) {
				r.documents(ctx)
			}
		case trigger := <-r.asked:
			r.once(ctx, trigger)
		}
	}
}

// once tries to reload.
func (r *reloader) once(ctx context.Context, trigger string) {
	start := time.Now()
	r.busy.Store(true)
	cfg, err := r.apply(ctx)
	r.busy.Store(false)
	if ctx.Err() != nil {
		return
	}
	attempt := admin.Reload{Time: start, Trigger: trigger, Sources: r.paths}
	took := time.Since(start)
	if err != nil {
		attempt.Errors = mistakes(err)
		r.mu.Lock()
		r.reloads.Failed = &attempt
		r.mu.Unlock()
		texts := make([]string, len(attempt.Errors))
		for i := range attempt.Errors {
			texts[i] = attempt.Errors[i].Text
		}
		text := strings.Join(texts, "; ")
		if len(text) > eventText {
			r.p.log.Warn("reload refused", "errors", len(texts), "all", text)
		}
		r.p.rec.Reload(false, took, text)
		return
	}
	r.mu.Lock()
	r.reloads = admin.Reloads{Loaded: attempt}
	r.mu.Unlock()
	logWarnings(r.p.log, cfg.Warnings)
	r.p.rec.Reload(true, took, trigger+": "+strings.Join(r.paths, " "))
}

// documents puts in force what the config centre says now.
func (r *reloader) documents(ctx context.Context) {
	start := time.Now()
	r.busy.Store(true)
	cfg, err := r.center.compose(r.files)
	if err == nil {
		err = r.p.merger.SetConfig(ctx, cfg)
	}
	r.busy.Store(false)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		r.p.log.Warn("the documents of the config centre were refused", "err", err)
		r.p.rec.Reload(false, time.Since(start), centerName+": "+err.Error())
		return
	}
	r.current = cfg
	r.accepted()
	r.p.rec.Reload(true, time.Since(start), centerName)
}

// apply puts the files in force, or leaves everything as it was.
func (r *reloader) apply(ctx context.Context) (*config.Config, error) {
	files, err := load(r.paths)
	if err != nil {
		return nil, err
	}
	cfg, err := r.center.compose(files)
	if err != nil {
		return nil, err
	}
	listeners, err := r.p.admin.Prepare(&cfg.Listen)
	if err != nil {
		return nil, err
	}
	was := r.current
	if accessLog(cfg) != accessLog(was) {
		if err := r.p.rec.SetAccessLog(accessLog(cfg)); err != nil {
			listeners.Abort()
			return nil, err
		}
	}
	if err := r.p.merger.SetConfig(ctx, cfg); err != nil {
		listeners.Abort()
		if accessLog(cfg) != accessLog(was) {
			err = errors.Join(err, r.p.rec.SetAccessLog(accessLog(was)))
		}
		return nil, err
	}
	listeners.Commit()
	r.files, r.current = files, cfg
	r.accepted()
	if err := r.center.follow(ctx, files); err != nil {
		r.p.log.Error("the config centre cannot be followed", "err", err)
	}
	r.show()
	return cfg, nil
}

// accepted notes that the last composition is in force.
func (r *reloader) accepted() {
	r.center.accepted()
	r.show()
}

func (r *reloader) show() {
	shown := r.center.shown()
	r.mu.Lock()
	r.shown = shown
	r.mu.Unlock()
}

// state returns how the last attempts went, and how the documents of the config centre are doing.
func (r *reloader) state() admin.Reloads {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.reloads
	v.Center = r.shown
	return v
}

// mistakes takes an error apart.
func mistakes(err error) []admin.Mistake {
	var many config.Errors
	if errors.As(err, &many) {
		list := make([]admin.Mistake, len(many))
		for i, e := range many {
			list[i] = admin.Mistake{File: e.File, Line: e.Line, Column: e.Col, Field: e.Path, Message: e.Msg, Text: e.Error()}
		}
		return list
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // the joined error itself is meant
		var list []admin.Mistake
		for _, e := range joined.Unwrap() {
			list = append(list, mistakes(e)...)
		}
		return list
	}
	return []admin.Mistake{{Message: err.Error(), Text: err.Error()}}
}
