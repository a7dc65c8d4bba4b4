package wire

import (
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// peer simulates a client as its reader sees it, without randomness: the test is about when polling begins and ends.
type peer struct {
	every  time.Duration // between two messages
	size   int           // of a message
	window int           // most messages that it sends without an answer; 0 = any number
	answer time.Duration // from a read to the arrival of the next message, which the read has triggered
}

// run reads from the peer for d, and returns the number of messages, and the fraction of the time in which it was polled.
func (p peer) run(m *moderation, now *hook.Instant, d time.Duration) (messages int, polled float64) {
	end := now.Add(d)
	begin, sent := *now, *now // sent is when the last message that was read was sent
	var polledFor time.Duration
	for *now < end {
		before := *now
		n := 0
		if m.polling {
			*now = now.Add(m.interval)
			n = int(now.Sub(sent) / p.every)
			polledFor += now.Sub(before)
		} else {
			*now = max(*now, sent.Add(p.every)) + 2000 // waking and reading takes time
			n = max(int(now.Sub(sent)/p.every), 1)
		}
		if p.window > 0 && n >= p.window {
			n = p.window
			sent = now.Add(p.answer)
		} else {
			sent = sent.Add(time.Duration(n) * p.every)
		}
		messages += n
		m.note(*now, n*p.size)
	}
	return messages, float64(polledFor) / float64(now.Sub(begin))
}

func TestModeration(t *testing.T) {
	const often, never, seldom = 0.9, 0, 0.2
	for _, tc := range []struct {
		name string
		peer peer
		min  float64 // fraction of the time in which it is polled
		max  float64
	}{
		{"flat out", peer{every: 2 * time.Microsecond, size: 150}, often, 1},
		{"20,000 a second", peer{every: 50 * time.Microsecond, size: 150}, often, 1},
		{"5,000 a second", peer{every: 200 * time.Microsecond, size: 150}, never, never},
		{"one a second", peer{every: time.Second, size: 150}, never, never},
		{"large messages", peer{every: 20 * time.Microsecond, size: 64 << 10}, never, never},
		{"one at a time", peer{every: time.Microsecond, size: 150, window: 1, answer: 30 * time.Microsecond}, never, seldom},
		{"ten in flight", peer{every: time.Microsecond, size: 150, window: 10, answer: 20 * time.Microsecond}, never, seldom},
		{"a thousand in flight", peer{every: 3 * time.Microsecond, size: 150, window: 1000, answer: 20 * time.Microsecond}, often, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var m moderation
			now := hook.Instant(1e9)
			_, polled := tc.peer.run(&m, &now, 5*time.Second)
			if polled < tc.min || polled > tc.max {
				t.Errorf("polled for %.3f of the time, want %.1f to %.1f", polled, tc.min, tc.max)
			}
		})
	}
}

// Polling ends when a peer becomes quiet, or begins to wait for answers.
func TestModerationEnds(t *testing.T) {
	busy := peer{every: 5 * time.Microsecond, size: 150}
	for name, next := range map[string]peer{
		"quiet":           {every: 10 * time.Millisecond, size: 150},
		"slower":          {every: 150 * time.Microsecond, size: 150},
		"waiting":         {every: time.Microsecond, size: 150, window: 1, answer: 30 * time.Microsecond},
		"waiting for ten": {every: time.Microsecond, size: 150, window: 10, answer: 20 * time.Microsecond},
	} {
		t.Run(name, func(t *testing.T) {
			var m moderation
			now := hook.Instant(1e9)
			if busy.run(&m, &now, pollAtMost-100*time.Millisecond); !m.polling {
				t.Fatal("a busy connection is not polled")
			}
			next.run(&m, &now, pollAtMost)
			if _, polled := next.run(&m, &now, time.Second); polled > 0.2 {
				t.Errorf("polled for %.3f of the time", polled)
			}
		})
	}
}

// Intervals grow only while very much arrives: otherwise they would add to the latency of each message.
func TestModerationGrows(t *testing.T) {
	flatOut := peer{every: 2 * time.Microsecond, size: 150}
	modest := peer{every: 50 * time.Microsecond, size: 150}
	var m moderation
	now := hook.Instant(1e9)
	if flatOut.run(&m, &now, 100*time.Millisecond); m.interval != longestInterval {
		t.Errorf("flat out: the interval is %v, want %v", m.interval, longestInterval)
	}
	if modest.run(&m, &now, 100*time.Millisecond); !m.polling || m.interval != shortestInterval {
		t.Errorf("20,000 a second: the interval is %v, polled %t, want %v", m.interval, m.polling, shortestInterval)
	}
}

// A peer that sends less at longer intervals, because it waits for answers, gets the shorter ones back, and the pauses between trials
// grow.
func TestModerationStopsGrowing(t *testing.T) {
	windowed := peer{every: 2 * time.Microsecond, size: 150, window: 60, answer: 2 * time.Microsecond}
	var m moderation
	now := hook.Instant(1e9)
	windowed.run(&m, &now, 5*time.Second)
	if m.interval > 2*shortestInterval || m.grows.length < 4*shortestWait {
		t.Errorf("the interval is %v, and not tried to be longer for %v", m.interval, m.grows.length)
	}
}

// Input that accumulated during polling is read at once when polling ends, so it says nothing about the speed of the peer. The next trial
// used to be compared with it, and failed.
func TestBurstIsNoRate(t *testing.T) {
	flatOut := peer{every: 4 * time.Microsecond, size: 150}
	var m moderation
	now := hook.Instant(1e9)
	flatOut.run(&m, &now, pollAtMost-100*time.Millisecond)
	for m.polling {
		now = now.Add(m.interval)
		m.note(now, int(m.interval/flatOut.every)*flatOut.size)
	}
	for range eagerWindow {
		now = now.Add(time.Microsecond)
		m.note(now, thinRead/2)
	}
	if m.polling {
		t.Error("polling began again with what had gathered")
	}
	flatOut.run(&m, &now, 100*time.Millisecond)
	if !m.polling || m.begins.length != 0 {
		t.Errorf("polled %t, pause after failed trials %v", m.polling, m.begins.length)
	}
}
