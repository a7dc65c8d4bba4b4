package wasm

import (
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// sharedStore is a store that several hosts follow.
type sharedStore struct {
	all     map[string]StoredPolicy
	changes int64
	err     error
}

func (s *sharedStore) Save(k StoredPolicy) error {
	if s.err != nil {
		return s.err
	}
	s.changes++
	k.Revision = s.changes
	if s.all == nil {
		s.all = map[string]StoredPolicy{}
	}
	s.all[k.Name] = k
	return nil
}

func (s *sharedStore) Delete(name string) error {
	if s.err == nil {
		delete(s.all, name)
	}
	return s.err
}

func (*sharedStore) LoadAll() ([]StoredPolicy, error) { return nil, nil }

func (s *sharedStore) list() (all []StoredPolicy) {
	for _, k := range s.all {
		all = append(all, k)
	}
	return all
}

// sharing returns hosts that share a store, and records the changes that the queues of the second see.
func sharing(t *testing.T) (s *sharedStore, a, b *Host, told *changes, log *lines) {
	t.Helper()
	s, told, log = &sharedStore{}, &changes{}, &lines{}
	a = open(t, 1, Env{Store: s, Shared: true})
	b = open(t, 1, Env{Store: s, Shared: true, Log: log.logger()})
	b.OnChange(told.note)
	return s, a, b, told, log
}

func deadline(h *Host, name string) hook.Instant {
	return enqueue1(h.Attach(queue(name, nil)), now, hook.Message{}).Deadline
}

// A policy that one host loads, replaces or unloads changes at the other host, too.
func TestFollow(t *testing.T) {
	s, a, b, told, _ := sharing(t)
	load(t, a, "x", ttl(1000), Options{Recompute: true})
	b.Follow(s.list)
	if got := deadline(b, "x"); got != now.AddMillis(1000) {
		t.Errorf("loaded: got %d", got)
	}
	load(t, a, "x", ttl(2000), Options{Recompute: true})
	load(t, a, "y", ttl(1), Options{})
	b.Follow(s.list)
	b.Follow(s.list) // nothing has changed
	if got := deadline(b, "x"); got != now.AddMillis(2000) {
		t.Errorf("replaced: got %d", got)
	}
	if err := a.Unload("x", true); err != nil {
		t.Fatal(err)
	}
	b.Follow(s.list)
	if got := b.Strategies(); !slices.Equal(got, []string{"wasm/y"}) {
		t.Errorf("unloaded: there are %v", got)
	}
	if want := []string{"wasm/x", "wasm/x!", "wasm/y", "wasm/x"}; !reflect.DeepEqual(told.seen, want) {
		t.Errorf("queues are told %v, want %v", told.seen, want)
	}
}

// The host that has saved a policy does not load it again, and a host that cannot save a policy does not keep it.
func TestFollowOneself(t *testing.T) {
	var notices []Change
	s := &sharedStore{}
	h := open(t, 1, Env{Store: s, Shared: true, Notice: func(n Notice) { notices = append(notices, n.Change) }})
	load(t, h, "x", ttl(1), Options{Config: []byte(`{"a":1}`)})
	h.Follow(s.list)
	h.Follow(s.list)
	if want := []Change{PolicyLoaded}; !slices.Equal(notices, want) {
		t.Errorf("got %v, want %v", notices, want)
	}
	s.err = errors.New("elsewhere")
	if _, err := h.Load("y", ttl(1), Options{}); !errors.Is(err, s.err) || !errors.Is(err, ErrNotStored) {
		t.Errorf("got %v, want %v", err, s.err)
	}
	if err := h.Unload("x", true); !errors.Is(err, s.err) {
		t.Errorf("got %v, want %v", err, s.err)
	}
	if got := h.Strategies(); !slices.Equal(got, []string{"wasm/x"}) {
		t.Errorf("there are %v", got)
	}
}

// A module that a host cannot load is an alarm there, until it is replaced.
func TestFollowWhatCannotBeLoaded(t *testing.T) {
	s, _, b, told, log := sharing(t)
	broken := StoredPolicy{Name: "x", Module: []byte("\x00asm nothing")}
	for _, before := range []bool{false, true} {
		if err := s.Save(broken); err != nil {
			t.Fatal(err)
		}
		b.Follow(s.list)
		b.Follow(s.list)
		if got := b.Alarms(); !slices.Equal(got, []string{"wasm/x"}) {
			t.Errorf("alarms, loaded before %t: %v", before, got)
		}
		if got := b.Strategies(); !slices.Equal(got, []string{"wasm/x"}) {
			t.Errorf("there are %v", got)
		}
		if i, ok := b.Info("x"); !ok || i.Loaded || i.LastError == "" {
			t.Errorf("got %+v", i)
		}
		if err := s.Save(StoredPolicy{Name: "x", Module: ttl(7)}); err != nil {
			t.Fatal(err)
		}
		b.Follow(s.list)
		if got := deadline(b, "x"); got != now.AddMillis(7) || len(b.Alarms()) > 0 {
			t.Errorf("got %d, alarms %v", got, b.Alarms())
		}
	}
	if got := strings.Count(log.String(), "could not be loaded"); got != 2 {
		t.Errorf("it was said %d times, want 2: %s", got, log)
	}
	if err := s.Save(StoredPolicy{Name: "x", Damage: errors.New("unreadable")}); err != nil {
		t.Fatal(err)
	}
	told.seen = nil
	b.Follow(s.list)
	if got := b.Strategies(); len(got) > 0 || !slices.Equal(told.seen, []string{"wasm/x"}) {
		t.Errorf("damaged: there are %v, and queues are told %v", got, told.seen)
	}
}

// A name that belongs to a shadow here is taken over by a policy of the store.
func TestFollowTheNameOfAShadow(t *testing.T) {
	s, _, b, _, _ := sharing(t)
	if _, err := b.Shadow("x", ttl(5), Options{}, "deadline"); err != nil {
		t.Fatal(err)
	}
	b.Follow(s.list)
	if i, _ := b.Info("x"); i.Origin != Shadow {
		t.Errorf("got %v, want the shadow", i.Origin)
	}
	if err := s.Save(StoredPolicy{Name: "x", Module: ttl(7)}); err != nil {
		t.Fatal(err)
	}
	b.Follow(s.list)
	if got := deadline(b, "x"); got != now.AddMillis(7) {
		t.Errorf("got %d", got)
	}
}

// atFirstWrite is a log that runs a function when its first line is written.
type atFirstWrite struct {
	once sync.Once
	do   func()
}

func (w *atFirstWrite) Write(p []byte) (int, error) {
	w.once.Do(w.do)
	return len(p), nil
}

// A queue chooses a policy before another broker's module is compiled here. On-error decides about its messages until the module is in force
// and is called about them.
func TestFollowAsksAboutWhatCameMeanwhile(t *testing.T) {
	for _, tc := range []struct {
		onError OnError
		action  hook.Action
		after   int64 // milliseconds of the deadline; 0: none
		told    string
	}{
		{onError: Builtin, after: 50, told: "wasm/x!"},
		{onError: Keep, told: "wasm/x!"},
		{onError: Reject, action: hook.Refuse, told: "wasm/x"},
	} {
		t.Run(tc.onError.String(), func(t *testing.T) {
			var got hook.Verdict
			var h *Host
			told := changes{}
			warned := &atFirstWrite{do: func() { // the last moment before it is in force
				got = enqueue1(h.Attach(queue("x", map[string]any{"message-ttl": int32(50)})), now, hook.Message{})
			}}
			h = openTrying(t, 1, Env{Shared: true, Log: slog.New(slog.NewTextHandler(warned, nil))})
			h.OnChange(told.note)
			s := &sharedStore{}
			if err := s.Save(StoredPolicy{Name: "x", Module: ttl(1000), Options: Options{OnError: tc.onError, Config: []byte(`{"unread": 1}`)}}); err != nil {
				t.Fatal(err)
			}
			h.Follow(s.list)
			var want hook.Instant
			if tc.after > 0 {
				want = now.AddMillis(tc.after)
			}
			if got.Action != tc.action || got.Deadline != want {
				t.Errorf("entering: got %+v, want the action %v and the deadline %d", got, tc.action, want)
			}
			if !slices.Equal(told.seen, []string{tc.told}) {
				t.Fatalf("queues are told %v, want %v", told.seen, tc.told)
			}
			if tc.action == hook.Keep {
				wantWaits(t, restamp(h.Attach(queue("x", nil)), 0), 1000)
			}
		})
	}
}

// A message that is counted when the module is already in force is included, too.
func TestFollowAsksAboutWhatIsCountedLate(t *testing.T) {
	var work sync.WaitGroup
	told := changes{}
	h := open(t, 1, Env{Shared: true, Go: work.Go})
	h.OnChange(told.note)
	s := &sharedStore{}
	if err := s.Save(StoredPolicy{Name: "x", Module: ttl(1000)}); err != nil {
		t.Fatal(err)
	}
	h.Follow(s.list)
	p := h.table.Load().policies["x"]
	c := call{binding: &binding{policy: p, queue: queue("x", nil)}, at: atEnqueue, now: now, ms: hooktest.Messages(hook.Message{}), vs: make([]hook.Verdict, 1)}
	c.withoutModule() // as if the version had been put in force just now
	work.Wait()
	if want := []string{"wasm/x", "wasm/x!"}; !slices.Equal(told.seen, want) {
		t.Errorf("queues are told %v, want %v", told.seen, want)
	}
}
