package guest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRestore(t *testing.T) {
	m := hook.Message{Deadline: 7, State: -3}
	guest.SetMessageDigest(&m, 9)
	v := hook.Verdict{AskHead: true, Deadline: 1, State: 2}
	guest.Restore(&v, &m)
	if want := guest.Signed(hook.Verdict{AskHead: true, Deadline: 7, State: -3}, 9); v != want {
		t.Errorf("got %+v, want %+v", v, want)
	}
	if guest.Digest(&v) != 9 || guest.MessageDigest(&m) != 9 {
		t.Errorf("got digests %d and %d, want 9", guest.Digest(&v), guest.MessageDigest(&m))
	}
}

// witness records the decisions about each message.
type witness struct {
	hooktest.Source
	told map[int]string
}

func (w *witness) Decided(i int, d *guest.Decision) { w.told[i] += d.Policy }

func TestDecided(t *testing.T) {
	w := &witness{Source: make(hooktest.Source, 2), told: map[int]string{}}
	ms := []hook.Message{{}, {Traced: true}}
	for i := range ms {
		ms[i].Bind(w, i)
		guest.Decided(&ms[i], &guest.Decision{Policy: "p"})
	}
	if len(w.told) != 1 || w.told[1] != "p" {
		t.Errorf("got %v, want the traced message's decision", w.told)
	}
	ms[1].Bind(&w.Source, 1) // takes no decisions
	guest.Decided(&ms[1], &guest.Decision{Policy: "p"})
	if w.told[1] != "p" {
		t.Error("a source that is no witness was told")
	}
}
