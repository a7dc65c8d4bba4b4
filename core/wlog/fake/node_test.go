package fake_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/fake"
	"github.com/curfewmq/curfew/core/wlog/wlogtest"
)

// A node that owns every shard conforms to the suite.
func TestConformanceOfNode(t *testing.T) {
	wlogtest.Run(t, func(*testing.T) wlogtest.Backend {
		storage := fake.New()
		for shard := range uint32(10) {
			storage.SetOwner(shard, 1)
		}
		return wlogtest.Backend{
			Engine:     func(*testing.T) wlog.Engine { return storage.Node(1, 0) },
			Crash:      func(*testing.T) {},
			SetFull:    func(_ *testing.T, full bool) { storage.SetFull(full) },
			Break:      func(*testing.T) { storage.Break(errors.New("broken")) },
			LargeEntry: 10_000,
		}
	})
}

func ignore(wlog.Index, []byte) error { return nil }

func mustOpen(t *testing.T, n *fake.Node) wlog.Log {
	t.Helper()
	l, err := n.Open(t.Context(), 1, ignore)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustAppend(t *testing.T, l wlog.Log, entry string) wlog.Index {
	t.Helper()
	at, err := l.Append(t.Context(), []byte(entry), wlog.Bringing)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func wantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}

func TestOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := fake.New()
		one, two := storage.Node(1, 0), storage.Node(2, 0)
		two.SetLag(time.Second)
		var mu sync.Mutex // guards got
		var got [2][]string
		for i, n := range []*fake.Node{one, two} {
			defer n.Owners(func(o wlog.Ownership) {
				mu.Lock()
				defer mu.Unlock()
				got[i] = append(got[i], fmt.Sprint(o))
			})()
		}
		wantTold := func(node int, want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(got[node-1], want) {
				t.Errorf("node %d was told %v, want %v", node, got[node-1], want)
			}
		}
		_, err := one.Open(t.Context(), 1, ignore)
		wantError(t, err, wlog.ErrNotOwner)
		_, err = one.Barrier(t.Context(), 1)
		wantError(t, err, wlog.ErrNoOwner)

		storage.SetOwner(1, 1)
		l := mustOpen(t, one)
		at := mustAppend(t, l, "one's")
		if b, err := two.Barrier(t.Context(), 1); b < at || err != nil {
			t.Errorf("barrier at %d, %v, want %d or more", b, err, at)
		}
		synctest.Wait()
		storage.SetOwner(1, 2)
		_, err = l.Append(t.Context(), []byte("too late"), wlog.Bringing)
		wantError(t, err, wlog.ErrLost)
		_, err = one.Open(t.Context(), 1, ignore)
		wantError(t, err, wlog.ErrNotOwner)
		var entries []string
		_, err = two.Open(t.Context(), 1, func(_ wlog.Index, entry []byte) error {
			entries = append(entries, string(entry))
			return nil
		})
		if err != nil || !slices.Equal(entries, []string{"one's"}) {
			t.Errorf("replayed %q, %v", entries, err)
		}
		wantTold(1, "{1 1 true 1}", "{1 2 false 2}")
		wantTold(2)
		time.Sleep(time.Second)
		wantTold(2, "{1 2 true 2}")
	})
}

// An owner that is deposed while its node replays does not get the shard.
func TestDeposedWhileReplaying(t *testing.T) {
	storage := fake.New()
	n := storage.Node(1, 0)
	storage.SetOwner(1, 1)
	l := mustOpen(t, n)
	mustAppend(t, l, "a")
	mustAppend(t, l, "b")
	entries := 0
	_, err := n.Open(t.Context(), 1, func(wlog.Index, []byte) error {
		entries++
		storage.SetOwner(1, 2)
		storage.SetOwner(1, 1) // another term
		return nil
	})
	wantError(t, err, wlog.ErrNotOwner)
	if entries != 1 {
		t.Errorf("%d entries were replayed, want 1", entries)
	}
}

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := fake.New()
		one, two := storage.Node(1, 0), storage.Node(2, 0)
		storage.SetOwner(1, 1)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		var got []string
		go func() {
			ended <- two.Follow(ctx, 1, func(_ wlog.Index, entry []byte, anew bool) error {
				got = append(got, fmt.Sprint(string(entry), " ", anew))
				return nil
			})
		}()
		l := mustOpen(t, one)
		mustAppend(t, l, "a")
		mustAppend(t, l, "b")
		synctest.Wait()
		two.SetStalled(true)
		synctest.Wait()
		mustAppend(t, l, "trimmed")
		if err := l.Trim(mustAppend(t, l, "c")); err != nil {
			t.Fatal(err)
		}
		two.SetStalled(false)
		synctest.Wait()
		cancel()
		wantError(t, <-ended, context.Canceled)
		if want := []string{"a true", "b false", "c true"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// A shard's time is never ahead of the time that it would have under its first owner.
func TestOffsets(t *testing.T) {
	storage := fake.New()
	nodes := []*fake.Node{storage.Node(1, time.Hour), storage.Node(2, -time.Minute), storage.Node(3, 0)}
	var got []time.Duration
	for _, n := range nodes {
		storage.SetOwner(1, n.ID())
		for range 2 {
			got = append(got, mustOpen(t, n).Offset())
		}
	}
	const ms = time.Millisecond
	want := []time.Duration{0, 0, time.Hour + time.Minute - ms, time.Hour + time.Minute - ms, time.Hour - 2*ms, time.Hour - 2*ms}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// An append during a change of owners may be in the log, whatever the former owner is told.
func TestAppendMeetsANewOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for after, want := range map[time.Duration]int{10 * time.Millisecond: 0, 90 * time.Millisecond: 1} {
			storage := fake.New()
			n := storage.Node(1, 0)
			n.SetLatency(100 * time.Millisecond)
			storage.SetOwner(1, 1)
			l := mustOpen(t, n)
			time.AfterFunc(after, func() { storage.SetOwner(1, 2) })
			_, err := l.Append(t.Context(), []byte("entry"), wlog.Bringing)
			wantError(t, err, wlog.ErrLost)
			entries := 0
			if _, err := storage.Node(2, 0).Open(t.Context(), 1, func(wlog.Index, []byte) error { entries++; return nil }); err != nil {
				t.Fatal(err)
			}
			if entries != want {
				t.Errorf("after %v there are %d entries, want %d", after, entries, want)
			}
		}
	})
}
