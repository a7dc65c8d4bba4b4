package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
	"github.com/curfewmq/curfew/core/wlog/wlogtest"
	"github.com/curfewmq/curfew/sdk/hook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func engineOn(t *testing.T, fsys vfs.FS, follow ...uint32) *Engine {
	t.Helper()
	files, err := seg.New(fsys, seg.Options{SegmentSize: 64 << 10, Clock: func() hook.Instant { return hook.Instant(time.Now().UnixNano()) }})
	must(t, err)
	return New(files, 3, follow...)
}

func TestConformance(t *testing.T) {
	for _, follow := range [][]uint32{nil, {0}} {
		t.Run(fmt.Sprint("followed ", follow), func(t *testing.T) {
			wlogtest.Run(t, func(*testing.T) wlogtest.Backend {
				fsys := crashfs.New(1)
				return wlogtest.Backend{
					Engine: func(t *testing.T) wlog.Engine {
						t.Helper()
						fsys.Inject(nil)
						return engineOn(t, fsys, follow...)
					},
					Crash:   func(*testing.T) { fsys = fsys.LosePower() },
					SetFull: func(_ *testing.T, full bool) { fsys.SetSpace(map[bool]int64{true: 0, false: 1 << 40}[full]) },
					Break: func(*testing.T) {
						fsys.Inject(func(op crashfs.Op) error {
							if op.Kind == crashfs.OpSync {
								return errors.New("broken")
							}
							return nil
						})
					},
					LargeEntry: 100_000,
				}
			})
		})
	}
}

// This process owns all shards from the start, and nothing changes that.
func TestOwners(t *testing.T) {
	e := engineOn(t, crashfs.New(1))
	var got []wlog.Ownership
	stop := e.Owners(func(o wlog.Ownership) { got = append(got, o) })
	stop()
	want := []wlog.Ownership{{Shard: 0, Owner: 1, Mine: true, Epoch: 1}, {Shard: 1, Owner: 1, Mine: true, Epoch: 1}, {Shard: 2, Owner: 1, Mine: true, Epoch: 1}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	must(t, e.Close())
}

// Whoever follows a shard gets what is in the log when it is opened, and what is appended; after a takeover nothing twice; and with anew
// what stands behind entries that were trimmed before they were followed. A barrier is the last entry.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := crashfs.New(1)
		ignore := func(wlog.Index, []byte) error { return nil }
		open := func(e *Engine) wlog.Log {
			l, err := e.Open(t.Context(), 0, ignore)
			must(t, err)
			return l
		}
		write := func(l wlog.Log, text string) wlog.Index {
			at, err := l.Append(t.Context(), []byte(text), wlog.Bringing)
			must(t, err)
			return at
		}
		before := engineOn(t, fsys)
		write(open(before), "a")
		must(t, before.Close())

		e := engineOn(t, fsys, 0)
		var got []string
		pass := make(chan struct{}, 100)
		ended := make(chan error, 1)
		go func() {
			ended <- e.Follow(context.Background(), 0, func(_ wlog.Index, entry []byte, anew bool) error {
				<-pass
				got = append(got, fmt.Sprint(string(entry), " ", anew))
				return nil
			})
		}()
		barrier := make(chan wlog.Index, 1)
		go func() {
			at, err := e.Barrier(context.Background(), 0)
			if err != nil {
				t.Error(err)
			}
			barrier <- at
		}()
		synctest.Wait()
		if len(barrier) > 0 {
			t.Error("there is a barrier before the shard is open")
		}
		l := open(e)
		if at := <-barrier; at == 0 {
			t.Error("the barrier is before the entry")
		}
		pass <- struct{}{}
		synctest.Wait()
		l = open(e) // another takeover
		write(l, "b")
		write(l, "c")
		synctest.Wait() // the follower has b, and waits
		at := write(l, "d")
		must(t, l.Trim(at))
		pass <- struct{}{}
		pass <- struct{}{}
		synctest.Wait()
		if last, err := e.Barrier(t.Context(), 0); err != nil || last != at {
			t.Errorf("the barrier is %#x, %v, want %#x", last, err, at)
		}
		must(t, e.Close())
		if err := <-ended; !errors.Is(err, wlog.ErrClosed) {
			t.Errorf("it ends with %v", err)
		}
		if want := []string{"a true", "b false", "d true"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if err := e.Follow(t.Context(), 1, nil); err == nil {
			t.Error("a shard is followed that cannot be")
		}
	})
}
