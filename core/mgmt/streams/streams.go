// Package streams bounds and writes answers that go on for as long as their readers like.
package streams

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	// Most is the number of streams that may be open at a time.
	Most = 64
	// MostOfUser is the number that one user may have open, so that some are left for others.
	MostOfUser = 16
	// lastTime is how long a stream may take to write its end when all streams end: a stuck reader must not hold up the broker.
	lastTime = time.Second
)

// Streams are the open streams of one kind. Any goroutine may use them.
type Streams struct {
	kind  string          // "event streams"
	ended context.Context // done when they end
	end   func()          // ends them; once is enough
	until time.Time       // deadline of the last write; set before ended is done

	mu   sync.Mutex // guards the fields below
	open int
	of   map[string]int // users
}

// New returns no open streams. Error messages call several of them kind.
func New(kind string) *Streams {
	s := &Streams{kind: kind, of: map[string]int{}}
	ended, cancel := context.WithCancel(context.Background())
	s.ended = ended
	s.end = sync.OnceFunc(func() {
		s.until = time.Now().Add(lastTime)
		cancel()
	})
	return s
}

// End ends all streams, which would go on for ever, and refuses later ones.
func (s *Streams) End() { s.end() }

// Ended is closed when all streams end.
func (s *Streams) Ended() <-chan struct{} { return s.ended.Done() }

// AtEnd calls fn in its own goroutine when all streams end, unless stop was called.
func (s *Streams) AtEnd(fn func()) (stop func() bool) { return context.AfterFunc(s.ended, fn) }

// TooMany is the error for a stream too many.
type TooMany struct {
	OfUser bool // the user has too many, not all users together
	text   string
}

func (e *TooMany) Error() string { return e.text }

// Open counts a stream of a user; Close has to follow it. The error is [TooMany] if there are too many.
func (s *Streams) Open(user string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.of[user] >= MostOfUser:
		return &TooMany{true, fmt.Sprintf("user '%s' has %d %s already", user, MostOfUser, s.kind)}
	case s.open >= Most:
		return &TooMany{false, fmt.Sprintf("there are %d %s already", Most, s.kind)}
	}
	s.open++
	s.of[user]++
	return nil
}

// Close counts the end of a user's stream, and reports whether it was the last one.
func (s *Streams) Close(user string) (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if s.of[user]--; s.of[user] == 0 {
		delete(s.of, user)
	}
	return s.open == 0
}

// Share is the pause of one stream after work, so that all open streams together take half a processor at most.
func (s *Streams) Share(worked time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return worked * time.Duration(2*max(s.open, 1)-1)
}

// Writer writes a stream to its reader. It belongs to one goroutine.
type Writer struct {
	streams *Streams
	w       http.ResponseWriter
	out     *http.ResponseController
	patient time.Duration

	deadline sync.Mutex // held while the write deadline is set
}

// Writer returns a writer for a reader that may take so long for one write.
func (s *Streams) Writer(w http.ResponseWriter, patient time.Duration) *Writer {
	return &Writer{streams: s, w: w, out: http.NewResponseController(w), patient: patient}
}

// Begin sends the header.
func (w *Writer) Begin(contentType string) {
	h := w.w.Header()
	h.Set("Content-Type", contentType)
	h.Set("X-Accel-Buffering", "no") // else nginx would buffer the stream
	w.w.WriteHeader(http.StatusOK)
}

// HurryAtEnd makes a write that is under way end when all streams do. The caller calls the returned function afterwards.
func (w *Writer) HurryAtEnd() (stop func() bool) {
	return context.AfterFunc(w.streams.ended, w.limit)
}

// Send sends bytes and flushes the buffers. It fails if the reader does not take them in time.
func (w *Writer) Send(b []byte) error {
	w.limit()
	if len(b) > 0 {
		if _, err := w.w.Write(b); err != nil {
			return err
		}
	}
	return w.out.Flush()
}

// limit sets the write deadline anew. Any goroutine may call it.
func (w *Writer) limit() {
	w.deadline.Lock()
	defer w.deadline.Unlock()
	until := time.Now().Add(w.patient)
	if w.streams.ended.Err() != nil {
		until = w.streams.until
	}
	_ = w.out.SetWriteDeadline(until) // a writer without deadlines, as tests have, has other limits
}
