package definition

import "sync"

// Lock is a mutex for changes, whose holder waits until they are durable, for a disk or for other nodes. Goroutines get it in the order
// in which they come. Tests that simulate time can have them wait for it, which they cannot for a [sync.Mutex]: time would stand still.
// Its zero value is unlocked.
type Lock struct {
	mu      sync.Mutex // guards what follows
	held    bool
	waiting []chan struct{} // closed for the one who holds it next
}

// Lock waits until it is the caller's turn.
func (l *Lock) Lock() {
	if turn := l.enter(); turn != nil {
		<-turn
	}
}

// enter returns what to wait for; nil = the caller holds the Lock.
func (l *Lock) enter() (turn chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.held {
		l.held = true
		return nil
	}
	turn = make(chan struct{})
	l.waiting = append(l.waiting, turn)
	return turn
}

// Unlock gives the Lock to who waits longest. It must be locked.
func (l *Lock) Unlock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.held:
		panic("definition: unlock of an unlocked Lock")
	case len(l.waiting) == 0:
		l.held, l.waiting = false, nil
	default:
		close(l.waiting[0])
		l.waiting = l.waiting[1:]
	}
}
