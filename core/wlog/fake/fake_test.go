package fake_test

import (
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/fake"
	"github.com/curfewmq/curfew/core/wlog/wlogtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	wlogtest.Run(t, func(*testing.T) wlogtest.Backend {
		storage := fake.New()
		return wlogtest.Backend{
			Engine:     func(*testing.T) wlog.Engine { return storage.Engine() },
			Crash:      func(*testing.T) {},
			SetFull:    func(_ *testing.T, full bool) { storage.SetFull(full) },
			Break:      func(*testing.T) { storage.Break(errors.New("broken")) },
			LargeEntry: 10_000,
		}
	})
}

// Two brokers of a cluster: the second takes over while the first still sends entries.
func TestLateEntriesAreVoid(t *testing.T) {
	storage := fake.New()
	first, err := storage.Engine().Open(t.Context(), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Append(t.Context(), []byte("one"), wlog.Bringing); err != nil {
		t.Fatal(err)
	}
	second, err := storage.Engine().Open(t.Context(), 0, func(wlog.Index, []byte) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	<-first.Lost()
	storage.Late(0, 1, []byte("late"))
	if _, err := second.Append(t.Context(), []byte("two"), wlog.Bringing); err != nil {
		t.Fatal(err)
	}
	storage.Late(0, 1, []byte("later still"))

	var got []string
	_, err = storage.Engine().Open(t.Context(), 0, func(_ wlog.Index, entry []byte) error {
		got = append(got, string(entry))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0] != "one" || got[1] != "two" {
		t.Errorf("replay: got %q, want one and two", got)
	}
}
