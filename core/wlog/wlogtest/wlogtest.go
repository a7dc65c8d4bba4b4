// Package wlogtest is the conformance suite for log engines, with a model of a shard for crash tests.
package wlogtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/curfewmq/curfew/core/wlog"
)

// Backend is an empty storage for engines. A nil function means that the storage lacks that ability; tests that need it are skipped.
type Backend struct {
	// Engine returns an engine on the storage, as in a new process. No other engine of this Backend is open.
	Engine func(t *testing.T) wlog.Engine
	// Crash ends the process that has the engine open, and loses everything that is not durable. The engine is closed afterwards.
	Crash func(t *testing.T)
	// SetFull sets whether the storage is full. A full storage takes Settling entries at
	// least for a while, and soon refuses Bringing entries of LargeEntry bytes. An engine
	// may notice late that the storage has space again.
	SetFull func(t *testing.T, full bool)
	// Break makes the next append fail.
	Break func(t *testing.T)
	// LargeEntry is the size of an entry that is large for the storage; 0 = 1 MiB.
	LargeEntry int
}

// Run runs the suite, each test in a synctest bubble and with a new backend.
func Run(t *testing.T, backend func(t *testing.T) Backend) {
	t.Helper()
	for _, tc := range []struct {
		name string
		run  func(s *suite)
	}{
		{"empty", (*suite).empty},
		{"replay", (*suite).replay},
		{"sizes", (*suite).sizes},
		{"buffer is the caller's", (*suite).buffer},
		{"read", (*suite).read},
		{"read beside append", (*suite).readBesideAppend},
		{"trim", (*suite).trim},
		{"trim beside append", (*suite).trimBesideAppend},
		{"shards", (*suite).shards},
		{"takeover", (*suite).takeover},
		{"takeovers in a row", (*suite).takeovers},
		{"resumed", (*suite).resumed},
		{"close", (*suite).closing},
		{"replay is refused", (*suite).refusal},
		{"open is cancelled", (*suite).cancelled},
		{"append is cancelled", (*suite).cancelledAppend},
		{"full", (*suite).full},
		{"broken", (*suite).broken},
		{"crash", (*suite).crash},
		{"random", (*suite).random},
		{"pipeline", (*suite).pipeline},
		{"takeover of a pipeline", (*suite).pipelineTakeover},
		{"broken pipeline", (*suite).brokenPipeline},
		{"full pipeline", (*suite).fullPipeline},
		{"closed pipeline", (*suite).closedPipeline},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { run(t, backend(t), tc.run) })
		})
	}
}

func run(t *testing.T, backend Backend, test func(s *suite)) {
	t.Helper()
	s := &suite{T: t, Backend: backend, rng: rand.New(rand.NewPCG(1, 2))}
	if s.LargeEntry == 0 {
		s.LargeEntry = 1 << 20
	}
	s.start()
	defer func() {
		if err := s.engine.Close(); err != nil {
			t.Errorf("Engine.Close: %v", err)
		}
	}()
	test(s)
}

// suite is one test of the suite.
type suite struct {
	*testing.T
	Backend
	rng    *rand.Rand
	engine wlog.Engine
}

func (s *suite) start() { s.engine = s.Engine(s.T) }

// restart closes the engine and makes a new one.
func (s *suite) restart() {
	s.Helper()
	s.noError(s.engine.Close(), "Engine.Close")
	s.start()
}

func (s *suite) noError(err error, what string) {
	s.Helper()
	if err != nil {
		s.Fatalf("%s: %v", what, err)
	}
}

func (s *suite) wantError(err, want error, what string) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Fatalf("%s: got error %v, want %v", what, err, want)
	}
}

// open opens a shard and checks its replay.
func (s *suite) open(shard uint32, m *Model) wlog.Log {
	s.Helper()
	r := m.Replay()
	l, err := s.engine.Open(s.Context(), shard, r.Entry)
	s.noError(err, "Open")
	s.noError(r.Done(), "replay")
	return l
}

// append appends an entry of size bytes, which must succeed.
func (s *suite) append(l wlog.Log, m *Model, size int) wlog.Index {
	s.Helper()
	return s.appendFor(l, m, size, wlog.Bringing)
}

// appendFor is append with a purpose.
func (s *suite) appendFor(l wlog.Log, m *Model, size int, purpose wlog.Purpose) wlog.Index {
	s.Helper()
	at, err := l.Append(s.Context(), m.Next(size), purpose)
	s.noError(err, "Append")
	s.noError(m.Appended(at, size, nil), "Append")
	return at
}

// size returns a random size for an entry: mostly small, sometimes larger than a segment.
func (s *suite) size() int {
	switch n := s.rng.IntN(100); {
	case n < 80:
		return s.rng.IntN(300)
	case n < 98:
		return s.rng.IntN(5000)
	default:
		return s.rng.IntN(s.LargeEntry)
	}
}

func (s *suite) isLost(l wlog.Log) bool {
	select {
	case <-l.Lost():
		return true
	default:
		return false
	}
}

// isOver checks that a Log has ended.
func (s *suite) isOver(l wlog.Log, want error) {
	s.Helper()
	if !s.isLost(l) {
		s.Error("Lost is not closed")
	}
	_, err := l.Append(context.WithoutCancel(s.Context()), []byte("more"), wlog.Bringing)
	s.wantError(err, want, "Append afterwards")
	s.wantError(l.Trim(1), want, "Trim afterwards")
}
