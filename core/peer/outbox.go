package peer

import "sync"

// letter is a message that is to be sent.
type letter struct {
	shard uint32
	body  []byte
	done  func(delivered bool) // nil = nobody wants to know
}

func (t *letter) settle(delivered bool) {
	if t.done != nil {
		t.done(delivered)
	}
}

// outbox is what waits for a stream to a node. Any goroutine may put letters into it.
type outbox struct {
	limit int           // bytes
	wake  chan struct{} // has a token if letters wait

	mu      sync.Mutex // guards the rest
	open    bool       // a stream is connected
	letters []letter
	bytes   int // of letters, and of those that are being written
	dropped uint64
}

func newOutbox(limit int) *outbox { return &outbox{limit: limit, wake: make(chan struct{}, 1)} }

// put adds a letter, unless there is no stream, or too much waits already.
func (o *outbox) put(t letter) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.open || o.bytes > 0 && o.bytes+len(t.body) > o.limit {
		o.dropped++
		return false
	}
	o.bytes += len(t.body)
	o.letters = append(o.letters, t)
	if len(o.letters) == 1 {
		select {
		case o.wake <- struct{}{}:
		default:
		}
	}
	return true
}

// take returns the letters that wait, and has the memory of those before for the next ones.
func (o *outbox) take(before []letter) []letter {
	o.mu.Lock()
	defer o.mu.Unlock()
	taken := o.letters
	o.letters = before[:0]
	return taken
}

// wrote makes space for others.
func (o *outbox) wrote(bytes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bytes -= bytes
}

// connected lets letters in.
func (o *outbox) connected() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open = true
}

// disconnected drops all that waits.
func (o *outbox) disconnected() {
	o.mu.Lock()
	dropped := o.letters
	o.open, o.letters, o.bytes = false, nil, 0
	o.dropped += uint64(len(dropped))
	o.mu.Unlock()
	for i := range dropped {
		dropped[i].settle(false)
	}
}

func (o *outbox) counts() (bytes int, dropped uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bytes, o.dropped
}
