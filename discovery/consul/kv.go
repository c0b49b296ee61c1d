package consul

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/sidecar-mesh/sidecar/config"
)

// KV is a prefix of the key-value store of a Consul registry, as a config centre.
type KV struct {
	// Set by NewKV, then read-only.
	registry, prefix string
	client           *client
}

// NewKV prepares the store of a registry, without I/O. Close it.
func NewKV(reg *config.Registry, prefix string) (*KV, error) {
	if reg == nil || reg.Consul == nil {
		return nil, errors.New("not a Consul registry")
	}
	c, err := newClient(reg.Consul, usual())
	if err != nil {
		return nil, err
	}
	return &KV{registry: reg.Name, prefix: prefix, client: c}, nil
}

// Close lets go of idle connections.
func (k *KV) Close() { k.client.close() }

// Watch reports all documents below the prefix, at first and whenever one of them changed, until ctx ends; failed is told of
// every attempt that went wrong. Continued says that no attempt failed since the report before and that the store's history
// went on: what is missing was deleted. Otherwise the store may have been lost and set up anew.
func (k *KV) Watch(ctx context.Context, report func(docs []config.Document, continued bool), failed func(error)) {
	var last []config.Document
	known := false
	var at uint64 // in the store's history; 0: it is broken off
	k.client.watch(ctx, always, func(ctx context.Context, a *api.Client, q *api.QueryOptions) (uint64, error) {
		docs, index, err := k.read(ctx, a, q)
		if err != nil {
			return 0, err
		}
		continued := at > 0 && index > at
		at = index
		same := slices.EqualFunc(docs, last, func(a, b config.Document) bool { return a.Name == b.Name && a.Revision == b.Revision })
		if !known || !same {
			last, known = docs, true
			report(docs, continued)
		}
		return index, nil
	}, func(err error) {
		at = 0
		failed(err)
	})
}

func always() bool { return true }

// List reads all documents once.
func (k *KV) List(ctx context.Context) ([]config.Document, error) {
	var docs []config.Document
	err := k.once(ctx, func(ctx context.Context, a *api.Client, q *api.QueryOptions) error {
		var err error
		docs, _, err = k.read(ctx, a, q)
		return err
	})
	return docs, err
}

// Get reads one document; it is nil where there is none.
func (k *KV) Get(ctx context.Context, name string) (*config.Document, error) {
	var doc *config.Document
	err := k.once(ctx, func(ctx context.Context, a *api.Client, q *api.QueryOptions) error {
		pair, _, err := a.KV().Get(k.prefix+name, q.WithContext(ctx))
		if err == nil && pair != nil {
			d := k.document(pair)
			doc = &d
		}
		return err
	})
	return doc, err
}

// ErrChanged says that a document is not what a compare-and-set wanted it to be.
var ErrChanged = errors.New("the document was changed meanwhile")

// Put writes a document. A revision makes it compare-and-set: 0 wants that there is none yet.
func (k *KV) Put(ctx context.Context, name string, data []byte, revision *uint64) error {
	return k.change(ctx, func(ctx context.Context, a *api.Client, w *api.WriteOptions) (bool, error) {
		pair := &api.KVPair{Key: k.prefix + name, Value: data}
		if revision == nil {
			_, err := a.KV().Put(pair, w.WithContext(ctx))
			return true, err
		}
		pair.ModifyIndex = *revision
		ok, _, err := a.KV().CAS(pair, w.WithContext(ctx))
		return ok, err
	})
}

// Delete deletes a document; with a revision, only if it is that one.
func (k *KV) Delete(ctx context.Context, name string, revision *uint64) error {
	return k.change(ctx, func(ctx context.Context, a *api.Client, w *api.WriteOptions) (bool, error) {
		if revision == nil {
			_, err := a.KV().Delete(k.prefix+name, w.WithContext(ctx))
			return true, err
		}
		ok, _, err := a.KV().DeleteCAS(&api.KVPair{Key: k.prefix + name, ModifyIndex: *revision}, w.WithContext(ctx))
		return ok, err
	})
}

// read lists what is below the prefix, in the order of names. A folder's own key is no document.
func (k *KV) read(ctx context.Context, a *api.Client, q *api.QueryOptions) ([]config.Document, uint64, error) {
	pairs, meta, err := a.KV().List(k.prefix, q.WithContext(ctx))
	if err != nil {
		return nil, 0, err
	}
	if len(pairs) == 0 {
		if err := doubtful(ctx, meta, q.Token, "key:read for "+k.prefix); err != nil {
			return nil, 0, err
		}
	}
	docs := make([]config.Document, 0, len(pairs))
	for _, p := range pairs {
		if !strings.HasSuffix(p.Key, "/") {
			docs = append(docs, k.document(p))
		}
	}
	slices.SortFunc(docs, func(a, b config.Document) int { return strings.Compare(a.Name, b.Name) })
	return docs, meta.LastIndex, nil
}

func (k *KV) document(p *api.KVPair) config.Document {
	return config.Document{
		Name: strings.TrimPrefix(p.Key, k.prefix), Place: "kv " + k.registry + ":" + p.Key, Revision: p.ModifyIndex, Data: p.Value,
	}
}

// once asks each agent in turn until one answers.
func (k *KV) once(ctx context.Context, do func(ctx context.Context, a *api.Client, q *api.QueryOptions) error) error {
	var last error
	for _, a := range k.client.agents {
		actx, cancel := context.WithTimeout(ctx, 2*k.client.reg.Timeout)
		err := do(actx, a.api, &api.QueryOptions{Token: k.client.readToken()})
		cancel()
		if err == nil {
			return nil
		}
		last = classify(err)
	}
	return last
}

// change writes by the first agent that takes a connection: whether a write that got no answer was done is not known, so
// it is not repeated elsewhere.
func (k *KV) change(ctx context.Context, do func(ctx context.Context, a *api.Client, w *api.WriteOptions) (bool, error)) error {
	var last error
	for _, a := range k.client.agents {
		actx, cancel := context.WithTimeout(ctx, 2*k.client.reg.Timeout)
		ok, err := do(actx, a.api, &api.WriteOptions{Token: k.client.readToken()})
		cancel()
		switch {
		case err == nil && !ok:
			return ErrChanged
		case err == nil:
			return nil
		}
		last = classify(err)
		if !refused(err) {
			break
		}
	}
	return last
}

// Below is the part of the store below a name, by the same connections.
func (k *KV) Below(name string) *KV {
	return &KV{registry: k.registry, prefix: k.prefix + name + "/", client: k.client}
}
