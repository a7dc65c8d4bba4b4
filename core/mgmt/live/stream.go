package live

import (
	"context"
	"time"

	"github.com/curfewmq/curfew/core/mgmt/streams"
)

const (
	// heartbeat is how long a stream may write nothing. Proxies close streams that look dead.
	heartbeat = 15 * time.Second
	// Patience is how long a reader may take to read one write.
	Patience = 10 * time.Second
	// retry is the time in milliseconds after which a browser connects again.
	retry = "retry: 1000\n\n"
)

// Stream is a stream of a view's states to one reader. It belongs to the goroutine that serves the request.
type Stream struct {
	Views   *Views
	Streams *streams.Streams
	Writer  *streams.Writer
	// Renew checks the reader's rights again, and returns the view for them; ok is false if the reader has lost all.
	Renew func() (s Spec, ok bool)
	// LastID is the id of the last event that the reader has seen; empty = none.
	LastID string

	key  string
	view *view // nil before the first
	seen uint64
	b    []byte
}

// Run streams until the reader leaves or may no longer see the view, the view ends, or all streams do.
func (s *Stream) Run(ctx context.Context) {
	s.Writer.Begin("text/event-stream")
	defer s.Writer.HurryAtEnd()()
	defer func() {
		if s.view != nil {
			s.Views.close(s.view)
		}
	}()
	s.b = append(s.b, retry...)
	timer := time.NewTimer(heartbeat)
	defer timer.Stop()
	last := s.Views.clock()
	for s.next() {
		now := s.Views.clock()
		if len(s.b) == 0 && now.Sub(last) >= heartbeat-period/2 {
			s.b = append(s.b, ":\n\n"...)
		}
		if len(s.b) > 0 {
			if s.Writer.Send(s.b) != nil {
				return
			}
			s.b, last = s.b[:0], now
		}
		timer.Reset(period - time.Duration(s.Views.clock())%period) // all streams at the same time, so that they share a state
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		case <-s.Streams.Ended():
			return
		}
	}
}

// next writes a change, if there is one, and reports whether the stream goes on.
func (s *Stream) next() bool {
	spec, ok := s.Renew()
	if !ok {
		return false
	}
	if s.view == nil || s.key != spec.Key {
		s.enter(&spec)
	}
	number, kind, data, err := s.view.since(s.seen)
	if err != nil {
		return false
	}
	if kind == "" {
		return true
	}
	s.seen = number
	s.b = append(append(s.b, "id: "...), s.view.id(number)...)
	s.b = append(append(append(s.b, "\nevent: "...), kind...), "\ndata: "...)
	s.b = append(append(s.b, data...), "\n\n"...)
	return true
}

// enter changes the view: at the beginning, and when the reader's rights have changed.
func (s *Stream) enter(spec *Spec) {
	if s.view != nil {
		s.Views.close(s.view)
	}
	s.view, s.key = s.Views.open(spec), spec.Key
	s.seen, s.LastID = s.view.seen(s.LastID), ""
}
