package mgmt

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/vhost"
)

// An import reads and checks everything before it changes anything. What exists already stays as it is, but for users,
// permissions, policies and parameters, which are replaced.

const (
	// uploadTime is how long a client may take to send definitions.
	uploadTime = 5 * time.Minute
	// importTime is how long they may take to be put in force: each is on the disk before the answer.
	importTime = 30 * time.Minute
)

func (a *API) importAll(c *request) error { return a.load(c, "") }

func (a *API) importVHost(c *request) error { return a.load(c, c.vhost.Name()) }

func (a *API) load(c *request, in string) error {
	f, err := c.definitions()
	if err != nil {
		return err
	}
	a.importing.Lock()
	defer a.importing.Unlock()
	p, err := a.readPlan(f, in)
	if err != nil {
		return err
	}
	if err := a.check(p); err != nil {
		return err
	}
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(importTime)) // a writer without deadlines needs none
	if err := a.apply(c, p); err != nil {
		return fmt.Errorf("import, of which a part was put in force: %w", err)
	}
	return c.done()
}

// definitions reads the body: JSON, or a form as browsers send them, with the JSON as its file.
func (c *request) definitions() (fields, error) {
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Now().Add(uploadTime)) // a reader without deadlines needs none
	b, err := c.upload()
	if err != nil {
		return nil, err
	}
	f, err := parseObject(b)
	if errors.Is(err, errNotJSON) {
		return nil, badRequest("failed_to_parse_json")
	}
	return f, err
}

func (c *request) upload() ([]byte, error) {
	kind, _, _ := mime.ParseMediaType(c.r.Header.Get("Content-Type")) // whatever else it is, it is read as JSON
	if kind != "multipart/form-data" {
		return c.read(c.api.BodyMax)
	}
	c.r.Body = http.MaxBytesReader(c.w, c.r.Body, c.api.BodyMax)
	form, err := c.r.MultipartReader()
	if err != nil {
		return nil, badRequest("form: %v", err)
	}
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return nil, badRequest("the form has no part named file")
		}
		if err != nil {
			return nil, formError(err)
		}
		if part.FormName() == "file" {
			b, err := io.ReadAll(part)
			return b, formError(err)
		}
	}
}

// formError is what is wrong with a form that could not be read.
func formError(err error) error {
	if _, large := errors.AsType[*http.MaxBytesError](err); err == nil || large {
		return err
	}
	return badRequest("form: %v", err)
}

// apply puts a plan in force.
func (a *API) apply(c *request, p *plan) error {
	for _, step := range []func() error{
		func() error { return a.applyVHosts(c, p) },
		func() error { return a.applyUsers(p) },
		func() error { return a.applyParameters(p) },
		func() error { return a.applyPolicies(p) },
		func() error { return a.applyExchanges(p) },
		func() error { return inParallel(p.queues, a.applyQueue) },
		func() error { return inParallel(p.bindings, a.applyBinding) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (a *API) applyVHosts(c *request, p *plan) error {
	for _, v := range p.vhosts {
		fresh, err := a.Store.AddVHost(v.name, v.Metadata)
		if err != nil {
			return err
		}
		if !fresh {
			continue
		}
		if _, err := a.users().SetPermissions(fullGrant(c.user.Name, v.name)); err != nil && !errors.Is(err, auth.ErrNoUser) {
			return err
		}
	}
	return nil
}

func (a *API) applyUsers(p *plan) error {
	for _, u := range p.users {
		if _, err := a.users().Set(u); err != nil {
			return err
		}
	}
	for _, g := range p.grants {
		if _, err := a.users().SetPermissions(g); err != nil {
			return err
		}
	}
	for _, g := range p.topics {
		if _, err := a.users().SetTopicPermissions(g); err != nil {
			return err
		}
	}
	return nil
}

func (a *API) applyParameters(p *plan) error {
	for _, g := range p.globals {
		if _, err := a.Store.SetGlobalParameter(g.Name, g.Value); err != nil {
			return err
		}
	}
	for _, it := range p.parameters {
		v, err := a.vhostNamed(it.vhost)
		if err != nil {
			return err
		}
		if _, err := v.SetParameter(it.it); err != nil {
			return err
		}
	}
	return nil
}

// vhostNamed finds a vhost that there was when the plan was checked.
func (a *API) vhostNamed(name string) (*vhost.VHost, error) {
	v, ok := a.Store.VHost(name)
	if !ok {
		return nil, fmt.Errorf("vhost %q is gone", name)
	}
	return v, nil
}

func (a *API) applyPolicies(p *plan) error {
	for _, it := range p.policies {
		v, err := a.vhostNamed(it.vhost)
		if err != nil {
			return err
		}
		if _, err := v.SetPolicy(it.kind, it.policy); err != nil {
			return err
		}
	}
	return nil
}

func (a *API) applyExchanges(p *plan) error {
	for _, it := range p.exchanges {
		v, err := a.vhostNamed(it.vhost)
		if err != nil {
			return err
		}
		if _, exists := v.Exchange(it.it.Name); exists {
			continue
		}
		if err := v.DeclareExchange(it.it, nil); err != nil {
			return err
		}
	}
	return nil
}

func (a *API) applyQueue(it planned[vhost.QueueDeclare]) error {
	v, err := a.vhostNamed(it.vhost)
	if err != nil {
		return err
	}
	if v.Mailbox(it.it.Name) != nil {
		return nil
	}
	_, err = v.DeclareQueue(it.it)
	return err
}

// applyBinding makes a binding. One that has lost an end meanwhile is lost, too.
func (a *API) applyBinding(it planned[vhost.Binding]) error {
	v, err := a.vhostNamed(it.vhost)
	if err != nil {
		return err
	}
	err = v.Bind(it.it, v.OwnerOf(it.it.Destination))
	if e, ok := errors.AsType[*vhost.Error](err); ok && e.Kind == vhost.NotFound {
		a.Log.Warn("import: a binding leads to or from nothing", "vhost", it.vhost, "source", it.it.Source, "destination", it.it.Destination)
		return nil
	}
	return err
}

// importers is how many definitions are put in force at once: they share what the disk has to do.
const importers = 64

// inParallel does something with every item. It returns one of the errors, and stops early if there is one.
func inParallel[T any](items []T, do func(T) error) error {
	var running sync.WaitGroup
	work := make(chan T)
	failed := make(chan error, importers)
	for range min(importers, len(items)) {
		running.Go(func() {
			for it := range work {
				if err := do(it); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	err := feed(items, work, failed)
	close(work)
	running.Wait()
	if err != nil {
		return err
	}
	select {
	case err = <-failed:
	default:
	}
	return err
}

// feed hands out the items until one has failed.
func feed[T any](items []T, work chan<- T, failed <-chan error) error {
	for _, it := range items {
		select {
		case work <- it:
		case err := <-failed:
			return err
		}
	}
	return nil
}

// withType makes a queue's type, which some write beside its arguments, one of them.
func withType(args amqp.Table, kind string) amqp.Table {
	const argument = "x-queue-type"
	if _, given := args.Lookup(argument); given {
		return args
	}
	return append(args, amqp.Field{Key: argument, Value: kind})
}
