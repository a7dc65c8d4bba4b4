package journal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/campaign"
	"github.com/curfewmq/curfew/core/wlog"
)

// pipeLog is a memLog that is a pipeline: what is begun gets there in turn, and is answered when the journey is over.
type pipeLog struct {
	*memLog
	journey func() time.Duration // nil = none
	most    int                  // entries on their way that were seen

	flying int
	tail   chan struct{} // closed when what was begun last has ended
	broken error         // of an entry, and of all behind it
}

var _ wlog.Log = (*pipeLog)(nil)

func (l *pipeLog) Depth() int { return 2 }

// pipeEngine opens a log as a pipeline.
type pipeEngine struct {
	memEngine
	journey func() time.Duration
	opened  *pipeLog
}

func (e *pipeEngine) Open(ctx context.Context, shard uint32, fn func(wlog.Index, []byte) error) (wlog.Log, error) {
	if _, err := e.memEngine.Open(ctx, shard, fn); err != nil {
		return nil, err
	}
	e.opened = &pipeLog{memLog: e.memLog, journey: e.journey}
	return e.opened, nil
}

func (l *pipeLog) Append(_ context.Context, entry []byte, purpose wlog.Purpose) (wlog.Index, error) {
	l.mu.Lock()
	flying := l.flying
	l.mu.Unlock()
	if flying > 0 {
		panic("Append while entries are on their way")
	}
	done, err := l.Begin(entry, purpose)
	if err != nil {
		return 0, err
	}
	a := <-done
	return a.At, a.Err
}

func (l *pipeLog) Begin(entry []byte, purpose wlog.Purpose) (<-chan wlog.Appended, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fits != nil && !l.fits(len(entry)) {
		return nil, wlog.ErrFull
	}
	before, ended, answer := l.tail, make(chan struct{}), make(chan wlog.Appended, 1)
	l.tail, l.flying = ended, l.flying+1
	l.most = max(l.most, l.flying)
	began := time.Now()
	go func() {
		defer close(ended)
		if before != nil {
			<-before
		}
		if l.journey != nil {
			time.Sleep(time.Until(began.Add(l.journey())))
		}
		if l.gate != nil {
			<-l.gate
		}
		answer <- l.arrive(entry)
	}()
	return answer, nil
}

func (l *pipeLog) arrive(entry []byte) wlog.Appended {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flying--
	l.appends++
	if l.broken == nil && l.refuse != nil {
		l.broken = l.refuse(l.appends)
	}
	if l.broken != nil {
		return wlog.Appended{Err: l.broken}
	}
	return wlog.Appended{At: l.store(entry)}
}

func openPipe(t *testing.T, l *memLog, journey time.Duration, o Options) (*Writer, *pipeLog) {
	t.Helper()
	e := &pipeEngine{memEngine: memEngine{l}, journey: func() time.Duration { return journey }}
	s, err := Open(t.Context(), e, 1, func(uint32, wlog.Index, []byte) error { return nil }, o)
	if err != nil {
		t.Fatal(err)
	}
	s.Recovered(nil)
	return s, e.opened
}

// tokens has one for each message that may be unconfirmed.
type tokens chan struct{}

func (c tokens) Durable()       { c <- struct{}{} }
func (c tokens) Failed(e error) { panic(e) }

// publish commits one message after another, each as soon as it may and not faster than each 10 µs, and returns how long that took.
func publish(t *testing.T, s *Writer, unconfirmed, messages int) time.Duration {
	t.Helper()
	confirmed := make(tokens, unconfirmed)
	for range unconfirmed {
		confirmed.Durable()
	}
	began := time.Now()
	for range messages {
		<-confirmed
		time.Sleep(10 * time.Microsecond)
		s.Commit(make([]byte, 100), nil, confirmed)
	}
	if err := s.Sync(); err != nil {
		t.Error(err)
	}
	return time.Since(began)
}

// A publisher that may have 100 messages unconfirmed waited for two journeys for each 100, as half of them came too late for the first.
func TestPublishersDoNotWaitForTwoJourneys(t *testing.T) {
	const journey, messages = 2 * time.Millisecond, 10_000
	for _, unconfirmed := range []int{50, 100} {
		synctest.Test(t, func(t *testing.T) {
			l := &memLog{forget: true}
			s, pipe := openPipe(t, l, journey, Options{Gather: 2 * time.Millisecond})
			took := publish(t, s, unconfirmed, messages)
			if best := messages / time.Duration(unconfirmed) * journey; took > best*17/10 {
				t.Errorf("%d unconfirmed: %d messages take %v, in journeys of %v: at best %v", unconfirmed, messages, took, journey, best)
			}
			if least := messages / unconfirmed; l.appends > 3*least || pipe.most != maxFlights {
				t.Errorf("%d unconfirmed: %d entries, at best %d; %d on their way at a time", unconfirmed, l.appends, least, pipe.most)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Who has one message unconfirmed waits for its journey and nothing else.
func TestALoneMessageDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := openPipe(t, &memLog{forget: true}, time.Millisecond, Options{Gather: time.Hour})
		if took, want := publish(t, s, 1, 1000), 1000*(time.Millisecond+10*time.Microsecond); took > want+time.Millisecond {
			t.Errorf("1000 messages take %v, want %v", took, want)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Of several that each have one message unconfirmed, one may begin its journey at any time.
func TestTheSecondJourneyBeginsHalfAJourneyLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h history
		s, pipe := openPipe(t, &memLog{hoard: true}, time.Second, Options{Gather: time.Hour})
		began := time.Now()
		commit := func(name string) { s.Commit([]byte(name), nil, h.as(name)) }
		commit("a;")
		synctest.Wait()
		commit("b;") // nobody knows yet how long a journey is
		synctest.Wait()
		commit("c;")
		time.Sleep(1100 * time.Millisecond)
		if got := h.durable(); !slices.Equal(got, []string{"a;", "b;"}) {
			t.Errorf("after a journey %v are durable", got)
		}
		time.Sleep(800 * time.Millisecond)
		commit("d;") // 0.5 s behind the journey of c at the earliest, which began 1 s after the beginning
		time.Sleep(500 * time.Millisecond)
		commit("e;")
		if err := s.Sync(); err != nil {
			t.Error(err)
		}
		if got := pipe.bodies(); !slices.Equal(got, []string{"a;", "b;", "c;", "d;", "e;"}) {
			t.Errorf("entries: %q", got)
		}
		if took := time.Since(began).Round(time.Millisecond); took != 3400*time.Millisecond {
			t.Errorf("the last journey has ended after %v, want 3.4 s", took)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Close does not have anything wait for others.
func TestCloseWaitsForJourneysOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h history
		s, _ := openPipe(t, &memLog{}, time.Hour, Options{Gather: time.Hour})
		s.Commit([]byte("a;"), nil, h.as("a;"))
		if err := s.Sync(); err != nil {
			t.Error(err)
		}
		s.Commit([]byte("b;"), nil, h.as("b;"))
		time.Sleep(time.Minute)
		s.Commit([]byte("c;"), nil, h.as("c;"))
		synctest.Wait()
		began := time.Now()
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != time.Hour || len(h.durable()) != 3 {
			t.Errorf("Close took %v, want an hour; durable: %q", took, h.durable())
		}
	})
}

// Where an entry fails, so does all behind it, in order, and nothing more is begun.
func TestWhatIsBehindAFailedEntryFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		l := &memLog{hoard: true, refuse: func(n int) error {
			if n == 2 {
				return broken
			}
			return nil
		}}
		var h history
		s, pipe := openPipe(t, l, time.Second, Options{})
		for i := range 4 {
			s.Commit(fmt.Appendf(nil, "%d;", i), nil, h.as(strconv.Itoa(i)))
			s.Commit(nil, nil, h.as(fmt.Sprintf("%d is durable", i)))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		want := []string{"0", "0 is durable"}
		if got := h.durable(); !slices.Equal(got, want) {
			t.Errorf("durable: %q, want %q", got, want)
		}
		for i, o := range h.outcomes()[2:] {
			name := strconv.Itoa(1 + i/2)
			if i%2 == 1 {
				name += " is durable"
			}
			if o.name != name || !errors.Is(o.err, broken) {
				t.Errorf("%q: %v; want %q", o.name, o.err, name)
			}
		}
		if got := pipe.bodies(); !slices.Equal(got, []string{"0;"}) || s.Err() == nil {
			t.Errorf("entries %q, and %v", got, s.Err())
		}
		if err := s.Close(t.Context()); !errors.Is(err, broken) {
			t.Error(err)
		}
	})
}

// While an entry has no space, nothing is written: all comes in its turn.
func TestNothingFollowsAnEntryThatHasNoSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{}
		var h history
		s, pipe := openPipe(t, l, time.Millisecond, Options{})
		commit := func(ops string, live ...Delta) { s.Commit([]byte(ops), live, h.as(ops)) }
		commit("+1,;", Delta{Extent: 1, Bytes: 4})
		synctest.Wait()
		l.limit(0)
		commit("+2,;", Delta{Extent: 1, Bytes: 4}) // while the first is on its way
		time.Sleep(time.Second)
		commit("+3,;", Delta{Extent: 1, Bytes: 4})
		commit("-1;", Delta{Extent: 1, Bytes: -4})
		time.Sleep(time.Second)
		if got := h.durable(); !slices.Equal(got, []string{"+1,;"}) || !s.Stats().Full {
			t.Errorf("durable: %q; %+v", got, s.Stats())
		}
		l.limit(100)
		if err := s.Sync(); err != nil {
			t.Error(err)
		}
		if got := h.durable(); !slices.Equal(got, []string{"+1,;", "+2,;", "+3,;", "-1;"}) || s.Stats().Full {
			t.Errorf("durable: %q; %+v", got, s.Stats())
		}
		if got := pipe.state(); len(got) != 2 || got[2] == "" || got[3] == "" {
			t.Errorf("the log amounts to %v", got)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The model of TestCampaignTrimming, on a pipeline.
func TestCampaignTrimmingOfAPipeline(t *testing.T) {
	for seed := range campaign.Size(t, "SIMULATION_SEEDS", 5, 20) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 3))
				trimAtRandom(t, rng, func(l *memLog) wlog.Engine { return &pipeEngine{memEngine: memEngine{l}} })
			})
		})
	}
}
