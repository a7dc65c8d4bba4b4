package live

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/mgmt/pattern"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Spec describes a view that a reader asks for. Readers with equal keys share one state; so
// a key also names the reader's rights.
type Spec struct {
	Key string
	// Begin begins the view for its first reader. It returns a function that makes a state;
	// the view calls that function at most once a second, from one goroutine at a time. An
	// error ends the view, and its readers have to ask again.
	Begin func() func() (jsonobj.Object, error)
}

// Views are the states that readers share. Any goroutine may use them.
type Views struct {
	clock clock.Clock

	mu    sync.Mutex // guards the fields below
	all   map[string]*view
	sweep *time.Timer // forgets views without readers, and their states; nil if there are none
}

// NewViews returns no views.
func NewViews(now clock.Clock) *Views { return &Views{clock: now, all: map[string]*view{}} }

const (
	// idle is how long a view is remembered after its last reader has left. A reader that
	// comes back in this time gets a change, not the whole state.
	idle = 20 * time.Second
	// maxViews is the number of views up to which views without readers are remembered.
	maxViews = 128
)

// view is one state, which its readers share.
type view struct {
	make  func() (object, error)
	clock clock.Clock
	born  string // tells views of the same key apart
	once  secondly

	mu      sync.Mutex // guards the fields below
	readers int
	left    hook.Instant // when the last reader did
	ended   error        // why there are no more states
	number  uint64       // of the state: 0 = there is none
	state   object
	whole   []byte // the state, as JSON
	changed []byte // from the state before, as JSON; nil = there was none
}

// open returns the view of a spec. The caller closes it.
func (vs *Views) open(s *Spec) *view {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	now := vs.clock()
	v := vs.all[s.Key]
	if v == nil || v.over() {
		vs.forget(now)
		v = &view{make: s.Begin(), clock: vs.clock, born: strconv.FormatInt(int64(now), 36)}
		vs.all[s.Key] = v
	}
	v.enter(1, now)
	return v
}

// close notes that a reader has left a view.
func (vs *Views) close(v *view) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	v.enter(-1, vs.clock())
	if vs.sweep == nil {
		vs.sweep = time.AfterFunc(idle, vs.sweepIdle)
	}
}

// sweepIdle forgets views that have had no reader for long, and comes back for the others.
func (vs *Views) sweepIdle() {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if vs.forget(vs.clock()); len(vs.all) > 0 {
		vs.sweep.Reset(idle)
		return
	}
	vs.sweep = nil
}

// forget forgets views without readers. The caller holds mu.
func (vs *Views) forget(now hook.Instant) {
	for key, v := range vs.all {
		if v.forgettable(now, len(vs.all) >= maxViews) {
			delete(vs.all, key)
		}
	}
}

func (v *view) forgettable(now hook.Instant, full bool) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.readers == 0 && (full || v.ended != nil || now.Sub(v.left) >= idle)
}

func (v *view) over() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.ended != nil
}

func (v *view) enter(n int, now hook.Instant) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.readers += n
	v.left = now
}

// refresh makes the next state.
func (v *view) refresh() {
	state, err := v.make()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ended = err; err != nil {
		v.state, v.whole, v.changed = nil, nil, nil
		return
	}
	state = stripped(state)
	v.changed = nil
	if v.number > 0 {
		c := change(v.state, state)
		if len(c) == 0 {
			return
		}
		v.changed = c.Append(nil)
	}
	v.number++
	v.state, v.whole = state, nil
}

// latest returns the present state as JSON, its number, and the change that made it from the state before.
func (v *view) latest() (number uint64, whole, changed []byte, err error) {
	v.once.do(v.clock, v.refresh)
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.number, v.json(), v.changed, v.ended
}

// since returns the update for a reader that has the state numbered seen: a change, the
// whole state, or nothing if there is no newer state.
func (v *view) since(seen uint64) (number uint64, kind string, data []byte, err error) {
	v.once.do(v.clock, v.refresh)
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.ended != nil:
		return 0, "", nil, v.ended
	case seen == v.number:
		return seen, "", nil, nil
	case seen > 0 && seen == v.number-1 && v.changed != nil:
		return v.number, "change", v.changed, nil
	}
	return v.number, "state", v.json(), nil
}

// json encodes the state when a reader first needs it. The caller holds mu.
func (v *view) json() []byte {
	if v.whole == nil && v.ended == nil {
		v.whole = v.state.Append(nil)
	}
	return v.whole
}

// id returns the id of an event with the state of a number.
func (v *view) id(number uint64) string { return fmt.Sprintf("%s-%d", v.born, number) }

// seen returns the number of the state that a reader has, from the id of its last event; 0
// if that is an id of another view.
func (v *view) seen(id string) uint64 {
	born, number, _ := strings.Cut(id, "-")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil || born != v.born {
		return 0
	}
	return n
}

// Once returns the present state of a view as JSON, for a reader that opens no stream.
func (vs *Views) Once(s *Spec) ([]byte, error) {
	v := vs.open(s)
	defer vs.close(v)
	_, whole, _, err := v.latest()
	return whole, err
}

// Selection is the queues whose names pass, in the vhosts that see selects. It stays the
// same until a queue is created or deleted. It belongs to one view.
type Selection struct {
	see    func(*vhost.VHost) bool
	name   *pattern.Filter // nil = all names pass
	set    uint64
	chosen []*Entry
}

// NewSelection returns a selection that has not looked at any queue yet.
func NewSelection(see func(*vhost.VHost) bool, name *pattern.Filter) *Selection {
	return &Selection{see: see, name: name}
}

// Read is [Survey.Read] with the queues of the selection. It compares names before it calls
// fn, while others may read the survey.
func (c *Selection) Read(s *Survey, fn func(*Reading, []*Entry)) error {
	var entries []*Entry
	var names []string
	stale := false
	s.Read(func(r *Reading) {
		if stale = c.set != r.Set || c.chosen == nil; !stale {
			fn(r, c.chosen)
			return
		}
		c.set = r.Set
		for _, t := range r.Tenants {
			if !c.see(t.VHost) {
				continue
			}
			entries = append(entries, t.Entries...)
			for _, e := range t.Entries {
				names = append(names, e.Config.Name)
			}
		}
	})
	if !stale {
		return nil
	}
	if err := c.choose(entries, names); err != nil {
		return err
	}
	s.Read(func(r *Reading) { fn(r, c.chosen) })
	return nil
}

// choose keeps the entries with names that pass.
func (c *Selection) choose(entries []*Entry, names []string) error {
	c.chosen = []*Entry{}
	run := c.name.Begin(nil, pattern.MostTime)
	for i, e := range entries {
		if run.Passes(names[i]) {
			c.chosen = append(c.chosen, e)
		}
	}
	if err := run.End(); err != nil {
		c.chosen = nil
		return jsonobj.Errorf("%v", err)
	}
	return nil
}
