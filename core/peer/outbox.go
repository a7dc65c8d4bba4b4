package peer

import "sync"

// letter is a message to be sent.
type letter struct {
	shard uint32
	body  []byte
	done  func(delivered bool) // nil = it is not called
}

func (t *letter) settle(delivered bool) {
	if t.done != nil {
		t.done(delivered)
	}
}

// outbox holds the letters that wait for a stream to a node. Any goroutine may put letters into it.
type outbox struct {
	limit int           // bytes
	wake  chan struct{} // has a token if letters wait

	mu      sync.Mutex // guards the rest
	open    bool       // a stream is connected
	letters []letter
	bytes   int // of waiting letters, and of those being written
	dropped uint64
}

func newOutbox(limit int) *outbox { return &outbox{limit: limit, wake: make(chan struct{}, 1)} }

// put adds a letter, unless there is no stream, or too many bytes wait already.
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

// take returns the waiting letters. The memory of before is reused for the next ones.
func (o *outbox) take(before []letter) []letter {
	o.mu.Lock()
	defer o.mu.Unlock()
	taken := o.letters
	o.letters = before[:0]
	return taken
}

// wrote makes space for more letters.
func (o *outbox) wrote(bytes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bytes -= bytes
}

func (o *outbox) connected() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open = true
}

// disconnected drops all waiting letters.
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
