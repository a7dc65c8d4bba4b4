package definitions

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/vhost"
)

// Import reads and checks definitions before it changes anything, then applies them: of the whole broker or, unless in is
// empty, of that vhost. What exists stays as it is, but users, permissions, policies and parameters are replaced. The user gets
// every permission in vhosts that are created. Errors of a client's are [*jsonobj.Error], [*vhost.Error] or [*auth.Invalid].
func (d *Definitions) Import(b []byte, in, user string) error {
	r := jsonobj.Read(b, nil)
	if errors.Is(r.Err(), jsonobj.ErrNotJSON) {
		return jsonobj.Errorf("failed_to_parse_json")
	}
	if r.Err() != nil {
		return r.Err()
	}
	d.importing.Lock()
	defer d.importing.Unlock()
	p, err := d.read(r, in)
	if err != nil {
		return err
	}
	if err := d.check(p); err != nil {
		return err
	}
	if err := d.apply(p, user); err != nil {
		return fmt.Errorf("import, of which a part was put in force: %w", err)
	}
	return nil
}

func (d *Definitions) apply(p *plan, user string) error {
	if err := d.applyVHosts(p.vhosts, user); err != nil {
		return err
	}
	if err := d.applyUsers(p); err != nil {
		return err
	}
	for _, g := range p.globals {
		if _, err := d.Store.SetGlobalParameter(g.Name, g.Value); err != nil {
			return err
		}
	}
	return d.applyInVHosts(p)
}

func (d *Definitions) applyVHosts(vs []plannedVHost, user string) error {
	for _, v := range vs {
		created, err := d.Store.AddVHost(v.name, v.Metadata)
		if err != nil {
			return err
		}
		if !created {
			continue
		}
		if _, err := d.Store.Users().SetPermissions(AllPermissions(user, v.name)); err != nil && !errors.Is(err, auth.ErrNoUser) {
			return err
		}
	}
	return nil
}

func (d *Definitions) applyUsers(p *plan) error {
	users := d.Store.Users()
	for _, u := range p.users {
		if _, err := users.Set(u); err != nil {
			return err
		}
	}
	for _, g := range p.grants {
		if _, err := users.SetPermissions(g); err != nil {
			return err
		}
	}
	for _, g := range p.topics {
		if _, err := users.SetTopicPermissions(g); err != nil {
			return err
		}
	}
	return nil
}

func (d *Definitions) applyInVHosts(p *plan) error {
	if err := each(d.Store, 1, p.parameters, func(v *vhost.VHost, p vhost.Parameter) error {
		_, err := v.SetParameter(p)
		return err
	}); err != nil {
		return err
	}
	if err := each(d.Store, 1, p.policies, func(v *vhost.VHost, p plannedPolicy) error {
		_, err := v.SetPolicy(p.kind, p.Policy)
		return err
	}); err != nil {
		return err
	}
	if err := each(d.Store, 1, p.exchanges, func(v *vhost.VHost, x vhost.Exchange) error {
		if _, exists := v.Exchange(x.Name); exists {
			return nil
		}
		return v.DeclareExchange(x, nil)
	}); err != nil {
		return err
	}
	if err := each(d.Store, importers, p.queues, func(v *vhost.VHost, q vhost.QueueDeclare) error {
		if v.Mailbox(q.Name) != nil {
			return nil
		}
		_, err := v.DeclareQueue(q)
		return err
	}); err != nil {
		return err
	}
	return each(d.Store, importers, p.bindings, d.bind)
}

// bind makes a binding. It skips one whose source or destination was deleted after the check.
func (d *Definitions) bind(v *vhost.VHost, b vhost.Binding) error {
	err := v.Bind(b, v.OwnerOf(b.Destination))
	if e, ok := errors.AsType[*vhost.Error](err); ok && e.Kind == vhost.NotFound {
		d.warnOfBinding(scoped[vhost.Binding]{v.Name(), b})
		return nil
	}
	return err
}

// importers is how many definitions are applied at once: they share what the disk has to do.
const importers = 64

// each applies definitions, each to its vhost, so many at once. It returns one of the errors, and stops early if there is one.
func each[T any](s *store.Store, atOnce int, items []scoped[T], do func(*vhost.VHost, T) error) error {
	var running sync.WaitGroup
	var next atomic.Int64
	var failed atomic.Pointer[error]
	for range min(atOnce, len(items)) {
		running.Go(func() {
			for failed.Load() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(items) {
					return
				}
				if err := items[i].apply(s, do); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	running.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

func (p *scoped[T]) apply(s *store.Store, do func(*vhost.VHost, T) error) error {
	v, ok := s.VHost(p.vhost)
	if !ok { // it was deleted after the check
		return fmt.Errorf("vhost %q is gone", p.vhost)
	}
	return do(v, p.it)
}
