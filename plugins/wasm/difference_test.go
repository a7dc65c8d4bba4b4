package wasm

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// differencesOf returns what a shadow remembers.
func differencesOf(t *testing.T, h *Host, name string, after uint64, count int) ShadowDifferences {
	t.Helper()
	all, err := h.Differences(name, after, count)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// carrying returns a message with contents, as a call gets it.
func carrying(m hook.Message, c hooktest.Content) []hook.Message {
	ms := []hook.Message{m}
	hooktest.Bind(ms, c)
	return ms
}

func TestDifferences(t *testing.T) {
	h := open(t, 1, Env{})
	active := load(t, h, "real", ttl(1000), Options{})
	shade, err := h.Shadow("shade", ttl(2000), Options{}, "wasm/real")
	if err != nil {
		t.Fatal(err)
	}
	hs := h.Attach(queue("real", nil))
	if hs.Shared {
		t.Error("queues with a shadow share hooks, which then do not know whose message differs")
	}
	ask := func(at hook.Instant, c hooktest.Content) {
		hs.OnEnqueue(at, carrying(hook.Message{Enqueued: at, Size: 5, Priority: 3, Persistent: true}, c), make([]hook.Verdict, 1))
	}
	ask(now, hooktest.Content{RoutingKey: "key", Parts: map[hook.Part][]byte{
		hook.PartMessageID: []byte("m-1"), hook.PartHeaders: []byte(strings.Repeat("h", DifferenceHeaders+7)),
	}})
	all := differencesOf(t, h, "shade", 0, Differences)
	if all.Compared != 1 || all.Differing != 1 || len(all.Latest) != 1 {
		t.Fatalf("got %+v, want one difference", all)
	}
	d := all.Latest[0]
	if d.ID != 1 || d.At != now || d.Hook != "on_enqueue" || d.Strategy != "wasm/real" || d.Queue == "" || d.VHost == "" ||
		d.Active.Deadline != now.AddMillis(1000) || d.Shadow.Deadline != now.AddMillis(2000) ||
		d.ActiveDigest != active.Digest || d.ShadowDigest != shade.Digest {
		t.Errorf("got %+v", d)
	}
	if m := d.Message; m.MessageID != "m-1" || m.RoutingKey != "key" || m.Exchange != "" || m.Size != 5 || m.Priority != 3 || !m.Persistent ||
		len(m.Headers) != DifferenceHeaders || m.HeadersSize != DifferenceHeaders+7 {
		t.Errorf("got %+v", m)
	}

	// Another module of the same name continues the list, and each difference names its module.
	next, err := h.Shadow("shade", ttl(3000), Options{}, "wasm/real")
	if err != nil {
		t.Fatal(err)
	}
	hs = h.Attach(queue("real", nil))
	ask(now, hooktest.Content{})
	all = differencesOf(t, h, "shade", 1, Differences)
	if len(all.Latest) != 1 || all.Latest[0].ID != 2 || all.Latest[0].ShadowDigest != next.Digest || all.Latest[0].Message.MessageID != "" {
		t.Errorf("got %+v, want the second alone", all)
	}
	if same := differencesOf(t, h, "shade", 0, 1); len(same.Latest) != 1 || same.Latest[0].ShadowDigest != shade.Digest {
		t.Errorf("got %+v, want the first alone", same)
	}
}

// All differences are counted; the number remembered per second, and in total, is limited.
func TestDifferencesAreBounded(t *testing.T) {
	h := open(t, 1, Env{})
	load(t, h, "real", ttl(1000), Options{})
	if _, err := h.Shadow("shade", ttl(2000), Options{}, "wasm/real"); err != nil {
		t.Fatal(err)
	}
	hs := h.Attach(queue("real", nil))
	const seconds, each = 10, 100
	for s := range seconds {
		for range each {
			enqueue1(hs, now.Add(time.Duration(s)*time.Second), hook.Message{})
		}
	}
	all := differencesOf(t, h, "shade", 0, 1000)
	if all.Differing != seconds*each || len(all.Latest) != Differences || all.Latest[Differences-1].ID != seconds*DifferencesPerSecond {
		t.Errorf("got %d counted, %d remembered, the last %d", all.Differing, len(all.Latest), all.Latest[len(all.Latest)-1].ID)
	}
	for i := range all.Latest {
		if all.Latest[i].ID != all.Latest[0].ID+uint64(i) {
			t.Fatalf("got ID %d at %d after %d", all.Latest[i].ID, i, all.Latest[0].ID)
		}
	}
}

func TestDifferencesOfNoShadow(t *testing.T) {
	h := open(t, 1, Env{})
	load(t, h, "real", ttl(1000), Options{})
	if _, err := h.Differences("real", 0, 1); !errors.Is(err, ErrNoShadow) {
		t.Errorf("got %v", err)
	}
	if _, err := h.Differences("none", 0, 1); !errors.Is(err, ErrUnknown) {
		t.Errorf("got %v", err)
	}
}

// A shadow that always differs allocates no memory per message.
func TestDifferencesDoNotAllocate(t *testing.T) {
	h := open(t, 1, Env{})
	load(t, h, "real", ttl(1000), Options{})
	if _, err := h.Shadow("shade", ttl(2000), Options{}, "wasm/real"); err != nil {
		t.Fatal(err)
	}
	hs := h.Attach(queue("real", nil))
	ms := carrying(hook.Message{Enqueued: now}, hooktest.Content{})
	vs := make([]hook.Verdict, 1)
	at := now
	ask := func() {
		at = at.Add(time.Second) // so that each is remembered
		vs[0] = hook.Verdict{}
		hs.OnEnqueue(at, ms, vs)
	}
	for range Differences {
		ask()
	}
	if n := testing.AllocsPerRun(100, ask); n > 0 {
		t.Errorf("%v allocations for each message that differs", n)
	}
}

// Turns of several queues overlap: one that began before a second ended adds differences after another has begun the next second. The limit per
// second holds nevertheless.
func TestDifferencesOfOverlappingTurns(t *testing.T) {
	var d differences
	early, late := now, now.Add(time.Second)
	allowed := 0
	for range 10 * DifferencesPerSecond {
		for _, at := range []hook.Instant{early, late} {
			if d.allows(at) {
				allowed++
			}
		}
	}
	if allowed > 2*DifferencesPerSecond {
		t.Errorf("%d in two seconds, want %d at most", allowed, 2*DifferencesPerSecond)
	}
}

// A reader that knows an ID of an unloaded shadow sees the differences of the next shadow of that name.
func TestDifferencesOfAnotherShadow(t *testing.T) {
	d := differences{ring: make([]difference, 2), next: 2}
	for id, want := range map[uint64]int{0: 2, 1: 1, 2: 0, 3: 2, 1 << 63: 2} {
		if got := d.after(id, Differences); len(got) != want {
			t.Errorf("after %d: got %d, want %d", id, len(got), want)
		}
	}
}
