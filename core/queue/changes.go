package queue

// Changes returns a number. If a later call returns another one, the queue has had a turn
// in between and may have changed. Any goroutine may call it; it does not block. A caller
// that must not miss a change calls it before it looks at the queue.
//
// A call makes the number odd, and the end of a turn makes an odd number even. So turns
// do not write the number of a queue for which it is never read:
//
//	Changes() = 5      a caller reads: 4 becomes 5
//	turn               5 becomes 6
//	turn               6 stays: it was not read
//	Changes() = 7      6 becomes 7: the queue may have changed
func (m *Mailbox) Changes() uint32 {
	for {
		n := m.changes.Load()
		if n&1 == 1 || m.changes.CompareAndSwap(n, n+1) {
			return n | 1
		}
	}
}

// noteChange records that the queue may have changed. The queue's turn calls it after its
// tasks.
func (m *Mailbox) noteChange() {
	if n := m.changes.Load(); n&1 == 1 {
		m.changes.Store(n + 1)
	}
}
