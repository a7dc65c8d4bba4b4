package mgmt

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// A node keeps the parts of other nodes in memory until it has joined them to an answer.
// Each part may take maxHeld bytes, and the number of requests that all nodes answer is
// limited. Longer parts that are needed as a whole, such as all definitions, are read for
// one request at a time. Long lists are passed on to the client while they are read.
const (
	// maxGathers limits the requests that all nodes answer at a time, and maxGathersOfUser
	// the requests of one user among them: a user with slow clients must not block other
	// users.
	maxGathers       = 64
	maxGathersOfUser = 16
	// maxHeld is how much of a part is read before an answer begins, in bytes.
	maxHeld = 1 << 20
	// gatherWait is how long a request waits for its place among them.
	gatherWait = 10 * time.Second
)

// gatherMemory limits the memory of all requests that are answered by all nodes. Any goroutine may use it.
type gatherMemory struct {
	gathers chan struct{} // has an element for each request
	whole   chan struct{} // has an element while a request reads more than maxHeld of its parts as a whole
	wait    time.Duration
	longest int64 // bytes of the longest row that another node may send

	mu sync.Mutex             // guards the fields below
	of map[string]*userPlaces // users with requests that have a place, or wait for one
}

// userPlaces are the places that one user's requests may take.
type userPlaces struct {
	taken    chan struct{} // has an element for each request that has a place
	requests int           // that have a place or wait for one; guarded by mu of the memory
}

func newGatherMemory() *gatherMemory {
	return &gatherMemory{
		gathers: make(chan struct{}, maxGathers), whole: make(chan struct{}, 1), wait: gatherWait, longest: maxPart, of: map[string]*userPlaces{},
	}
}

// enter returns a user's places, until leave.
func (m *gatherMemory) enter(user string) *userPlaces {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.of[user]
	if p == nil {
		p = &userPlaces{taken: make(chan struct{}, maxGathersOfUser)}
		m.of[user] = p
	}
	p.requests++
	return p
}

func (m *gatherMemory) leave(user string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.of[user]; p.requests > 1 {
		p.requests--
	} else {
		delete(m.of, user)
	}
}

// holding is the share of one request in the memory, and the streams that it reads.
type holding struct {
	of   *gatherMemory
	user string // that the request belongs to; "" = it serves many readers

	mu      sync.Mutex  // guards the fields below; because several parts are read at a time
	places  *userPlaces // of the user; nil = enter was not called
	placed  bool        // the request has one of the places
	begun   bool
	whole   bool
	refused bool
	streams []io.Closer
}

// begin waits until the request may be answered by all nodes. It may be called again.
func (h *holding) begin(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.user != "" {
		if h.places == nil {
			h.places = h.of.enter(h.user)
		}
		if err := h.take(ctx, h.places.taken, &h.placed); err != nil {
			return err
		}
	}
	return h.take(ctx, h.of.gathers, &h.begun)
}

// readWhole waits until the request may read its parts as a whole. It may be called again.
func (h *holding) readWhole(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.take(ctx, h.of.whole, &h.whole)
}

// errGathers is the failure of a request that has waited too long for others.
var errGathers = &failure{http.StatusServiceUnavailable, "busy", "all nodes are answering too many requests at a time: try again"}

// take takes one of the places, unless the request has one, and waits until one is free.
func (h *holding) take(ctx context.Context, places chan struct{}, taken *bool) error {
	if *taken {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, h.of.wait)
	defer cancel()
	select {
	case places <- struct{}{}:
		*taken = true
		return nil
	case <-ctx.Done():
		h.refused = true
		return errGathers
	}
}

// isRefused reports whether the request has waited in vain. Then parts are missing because
// of other requests, not because of their nodes.
func (h *holding) isRefused() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refused
}

// add registers a stream to be closed at the end.
func (h *holding) add(s io.Closer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streams = append(h.streams, s)
}

// closeStreams closes the streams of the request.
func (h *holding) closeStreams() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.streams {
		_ = s.Close() // the parts that were read count
	}
	h.streams = nil
}

// end closes the streams of the request and frees its memory.
func (h *holding) end() {
	h.closeStreams()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.whole {
		<-h.of.whole
	}
	if h.begun {
		<-h.of.gathers
	}
	if h.placed {
		<-h.places.taken
	}
	if h.places != nil {
		h.of.leave(h.user)
	}
	h.whole, h.begun, h.placed, h.places = false, false, false, nil
}
