package journal

import (
	"testing"
	"testing/synctest"
	"time"
)

// publisher commits one message after another, each as soon as it may and not faster than each 10 µs, with so many in flight. It returns
// how long that took, and how many entries there were, if an append takes a millisecond.
func publisher(t *testing.T, o Options, inFlight, messages int) (took time.Duration, appends int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{forget: true, refuse: func(int) error { time.Sleep(time.Millisecond); return nil }}
		s, confirmed := open(t, l, o), make(tokens, inFlight)
		for range inFlight {
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
		took = time.Since(began)
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		appends = l.appends
	})
	return took, appends
}

// tokens has one for each message that may be in flight.
type tokens chan struct{}

func (c tokens) Durable()       { c <- struct{}{} }
func (c tokens) Failed(e error) { panic(e) }

func TestGatherWritesFewerEntriesAndIsNotSlower(t *testing.T) {
	for inFlight, fewer := range map[int]float64{100: 0.7, 1000: 0.6} {
		plain, appends := publisher(t, Options{}, inFlight, 20_000)
		took, gathered := publisher(t, Options{Gather: 2 * time.Millisecond}, inFlight, 20_000)
		t.Logf("%d in flight: %v and %d entries; with Gather %v and %d", inFlight, plain, appends, took, gathered)
		if float64(gathered) > fewer*float64(appends) || took > plain+plain/10 {
			t.Errorf("%d in flight: %v and %d entries; with Gather %v and %d", inFlight, plain, appends, took, gathered)
		}
	}
}

// Where few messages are in flight nothing waits for others.
func TestGatherDelaysNoLoneMessage(t *testing.T) {
	for _, inFlight := range []int{1, 2, 10} {
		plain, _ := publisher(t, Options{}, inFlight, 1000)
		if took, _ := publisher(t, Options{Gather: 2 * time.Millisecond}, inFlight, 1000); took != plain {
			t.Errorf("%d in flight: 1000 messages take %v, without Gather %v", inFlight, took, plain)
		}
	}
}

// Close does not wait for others either.
func TestGatherEndsWithClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{forget: true, refuse: func(int) error { time.Sleep(time.Hour); return nil }}
		s := open(t, l, Options{Gather: time.Hour})
		s.Commit(make([]byte, manyBytes), nil, nil)
		time.Sleep(time.Minute)
		s.Commit(make([]byte, 10), nil, nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		if l.appends != 1 {
			t.Fatalf("%d entries were appended, want 1: the second gathers", l.appends)
		}
		began := time.Now()
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != time.Hour {
			t.Errorf("Close took %v, want that of an append", took)
		}
	})
}
