package definition

import "sync"

// Lock is a mutex for changes. Its holder waits until the changes are durable, on a disk or at other nodes. Goroutines get the lock in the order
// in which they asked for it. Tests that simulate time can wait for a Lock, but not for a [sync.Mutex], where time would stand still.
// The zero value is unlocked.
type Lock struct {
	mu      sync.Mutex // guards the fields below
	held    bool
	waiting []chan struct{} // closed for the next holder
}

// Lock waits until it is the caller's turn.
func (l *Lock) Lock() {
	if turn := l.enter(); turn != nil {
		<-turn
	}
}

// enter returns a channel to wait for; nil = the caller holds the Lock.
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

// Unlock passes the Lock to the goroutine that has waited longest. The Lock must be locked.
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
