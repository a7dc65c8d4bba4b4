package definitions

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/vhost"
)

// Import reads and checks definitions before it changes anything, and then applies them: the whole file, or only the definitions for one
// vhost unless in is empty. Existing definitions stay, except that users, permissions, policies and parameters are replaced. user gets
// every permission in vhosts that are created. Errors that the client has caused are [*jsonobj.Error], [*vhost.Error] or [*auth.Invalid].
//
// Expiry policies of the file that are new to the broker are loaded before the rest is checked, and unloaded if that is refused. Other
// versions of present policies replace these. warnings are about definitions that were imported and may be wrong.
func (d *Definitions) Import(b []byte, in, user string) (warnings []string, err error) {
	r, err := readFile(b)
	if err != nil {
		return nil, err
	}
	d.importing.Lock()
	defer d.importing.Unlock()
	modules, err := d.readModules(r, in)
	if err != nil {
		return nil, err
	}
	p := d.read(r, in, d.Hash)
	if err := d.check(p, d.here); err != nil {
		modules.undo()
		return nil, err
	}
	if err := modules.replace(); err != nil {
		return nil, err
	}
	modules.keep()
	return append(modules.warnings, p.warnings()...), partly(d.apply(p, user))
}

// Rehearse reads and checks definitions as [Definitions.Import] does, and changes nothing.
func (d *Definitions) Rehearse(b []byte, in string) (warnings []string, err error) {
	r, err := readFile(b)
	if err != nil {
		return nil, err
	}
	d.importing.Lock()
	defer d.importing.Unlock()
	if err := d.checkUnchosen(r); err != nil {
		return nil, err
	}
	modules, err := d.readModules(r, in)
	if err != nil {
		return nil, err
	}
	defer modules.undo()
	p := d.read(r, in, unhashed)
	err = d.check(p, d.here)
	return append(modules.warnings, p.warnings()...), err
}

// warnings are about definitions of a checked plan that the broker accepts from RabbitMQ but ignores, and about definitions that are left
// out, also because something else of that name exists.
func (p *plan) warnings() []string {
	var all remarks
	for _, planned := range p.parameters {
		if name := planned.it.Component; name != LimitsComponent {
			all.add(fmt.Sprintf("parameter '%s' of the component %s in vhost '%s': without effect here", planned.it.Name, name, planned.vhost))
		}
	}
	for _, planned := range p.policies {
		if keys := planned.it.WithoutEffect(); len(keys) > 0 {
			all.add(fmt.Sprintf("policy '%s' in vhost '%s': without effect here: %s", planned.it.Name, planned.vhost, strings.Join(keys, ", ")))
		}
	}
	return slices.Concat(all.all(), p.differing.all(), p.lost.all())
}

// readModules loads the new expiry policies of a file, provided that every policy that its definitions name exists then.
func (d *Definitions) readModules(r *reader, in string) (*moduleImport, error) {
	all, err := d.readModulesSection(r)
	if err != nil {
		return nil, err
	}
	if err := d.checkStrategies(r, in, all); err != nil {
		return nil, err
	}
	return d.loadModules(all)
}

func (d *Definitions) apply(p *plan, user string) error {
	users := d.Store.Users()
	for _, step := range []func() error{
		func() error {
			return firstError(p.vhosts, func(v scoped[vhost.Metadata]) error { return d.addVHost(v, user) })
		},
		func() error { return firstError(p.users, ignored(users.Set)) },
		func() error { return firstError(p.grants, ignored(users.SetPermissions)) },
		func() error { return firstError(p.topics, ignored(users.SetTopicPermissions)) },
		func() error {
			return firstError(p.globals, ignored(func(g store.GlobalParameter) (bool, error) { return d.Store.SetGlobalParameter(g.Name, g.Value) }))
		},
		func() error { return each(d.Store, 1, p.parameters, setParameter) },
		func() error { return each(d.Store, 1, p.policies, setPolicy) },
		func() error { return each(d.Store, 1, p.exchanges, declareExchange) },
		func() error { return each(d.Store, importers, p.queues, declareQueue) },
		func() error { return each(d.Store, importers, p.bindings, d.bind) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// ignored returns set without its first result.
func ignored[T any](set func(T) (created bool, err error)) func(T) error {
	return func(it T) error {
		_, err := set(it)
		return err
	}
}

func (d *Definitions) addVHost(v scoped[vhost.Metadata], user string) error {
	created, err := d.Store.AddVHost(v.vhost, v.it)
	if err != nil || !created {
		return err
	}
	_, err = d.Store.Users().SetPermissions(AllPermissions(user, v.vhost))
	if errors.Is(err, auth.ErrNoUser) {
		return nil // the user was deleted meanwhile
	}
	return err
}

func setParameter(v *vhost.VHost, p vhost.Parameter) error {
	_, err := v.Parameters().Set(p)
	return err
}

func setPolicy(v *vhost.VHost, p plannedPolicy) error {
	_, err := v.SetPolicy(p.kind, p.Policy)
	return err
}

func declareExchange(v *vhost.VHost, x vhost.Exchange) error {
	if _, exists := v.Exchange(x.Name); exists {
		return nil
	}
	return v.DeclareExchange(x, nil)
}

func declareQueue(v *vhost.VHost, q vhost.QueueDeclare) error {
	if v.Mailbox(q.Name) != nil {
		return nil
	}
	_, err := v.DeclareQueue(q)
	return err
}

// bind makes a binding. It skips one whose source or destination was deleted after the check.
func (d *Definitions) bind(v *vhost.VHost, b vhost.Binding) error {
	err := v.Bind(b, v.OwnerOf(b.Destination))
	if e, ok := errors.AsType[*vhost.Error](err); ok && e.Kind == vhost.NotFound {
		d.Log.Warn("import: a binding's source or destination was deleted meanwhile", "vhost", v.Name(), "source", b.Source, "destination", b.Destination)
		return nil
	}
	return err
}

// importers is how many definitions are applied at once, so that they share writes to the disk.
const importers = 64

// each applies definitions, each to its vhost, atOnce at a time. It returns one of the errors, and stops early if there is one.
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
