package queue

// seqHeap is a binary min-heap of sequence numbers.
type seqHeap []uint64

func (h *seqHeap) push(n uint64) {
	*h = append(*h, n)
	a := *h
	for i := len(a) - 1; i > 0; {
		p := (i - 1) / 2
		if a[p] <= a[i] {
			return
		}
		a[p], a[i] = a[i], a[p]
		i = p
	}
}

func (h *seqHeap) pop() {
	a := *h
	last := len(a) - 1
	a[0] = a[last]
	a = a[:last]
	*h = a
	if last == 0 {
		*h = nil
	}
	for i := 0; ; {
		c := 2*i + 1
		if c >= len(a) {
			return
		}
		if c+1 < len(a) && a[c+1] < a[c] {
			c++
		}
		if a[i] <= a[c] {
			return
		}
		a[i], a[c] = a[c], a[i]
		i = c
	}
}
