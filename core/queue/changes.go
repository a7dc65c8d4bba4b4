package queue

// Changes returns a number that differs from an earlier one if the queue may have changed
// since: it had a turn. Any goroutine may ask, and waits for nothing. To miss no change, the
// caller asks before it looks at the queue.
//
// The number is odd once it was asked for, and the end of the next turn makes it even:
// queues that are not asked for do not write it.
func (m *Mailbox) Changes() uint32 {
	for {
		n := m.changes.Load()
		if n&1 == 1 || m.changes.CompareAndSwap(n, n+1) {
			return n | 1
		}
	}
}

// noteChange notes that the queue may have changed. Only its turn calls it, afterwards.
func (m *Mailbox) noteChange() {
	if n := m.changes.Load(); n&1 == 1 {
		m.changes.Store(n + 1)
	}
}
