package broker

import "testing"

func TestMemoryIsReleasedWhenIdle(t *testing.T) {
	const mib = 1 << 20
	looks := []struct {
		name string
		at   heapSizes
		want bool
	}{
		{"the start", heapSizes{allocated: 30 * mib, live: 6 * mib, objects: 12 * mib}, false},
		{"busy", heapSizes{allocated: 40 * mib, live: 6 * mib, objects: 12 * mib}, false},
		{"quiet", heapSizes{allocated: 40*mib + 100, live: 6 * mib, objects: 12 * mib}, false},
		{"busy again", heapSizes{allocated: 41 * mib, live: 6 * mib, objects: 12 * mib}, false},
		{"quiet", heapSizes{allocated: 41*mib + 100, live: 6 * mib, objects: 12 * mib}, false},
		{"still quiet", heapSizes{allocated: 41*mib + 200, live: 6 * mib, objects: 12 * mib}, true},
		{"nothing left", heapSizes{allocated: 41*mib + 300, live: 6 * mib, objects: 6 * mib, free: mib}, false},
		{"nothing left", heapSizes{allocated: 41*mib + 400, live: 6 * mib, objects: 6 * mib, free: mib}, false},
		{"little left", heapSizes{allocated: 41*mib + 500, live: 6 * mib, objects: 7 * mib, free: 2 * mib}, false},
		{"pages are left", heapSizes{allocated: 41*mib + 600, live: 6 * mib, objects: 6 * mib, free: 5 * mib}, true},
		{"little beside what is in use", heapSizes{allocated: 41*mib + 700, live: 600 * mib, objects: 640 * mib, free: 10 * mib}, false},
		{"little beside what is in use", heapSizes{allocated: 41*mib + 800, live: 600 * mib, objects: 640 * mib, free: 10 * mib}, false},
		{"much beside what is in use", heapSizes{allocated: 41*mib + 900, live: 600 * mib, objects: 740 * mib, free: 10 * mib}, true},
		{"all of it was collected", heapSizes{allocated: 41*mib + 950, live: 8 * mib, objects: 6 * mib}, false},
		{"all of it was collected", heapSizes{allocated: 41*mib + 990, live: 8 * mib, objects: 6 * mib}, false},
	}
	var m idleMemory
	for i, l := range looks {
		if got := m.look(l.at); got != l.want {
			t.Errorf("look %d, %s: %t, want %t", i, l.name, got, l.want)
		}
	}
}

// Memory that a burst leaves behind is returned once.
func TestReleasedMemoryIsNotReleasedAgain(t *testing.T) {
	burst := make([][]byte, 64)
	for i := range burst {
		burst[i] = make([]byte, 1<<20)
	}
	before := readHeap()
	clear(burst)
	releaseHeap()
	after := readHeap()
	if freed := before.objects - after.objects; before.objects < after.objects || freed < 60<<20 {
		t.Errorf("%d bytes before, %d after", before.objects, after.objects)
	}
	m := idleMemory{allocated: after.allocated, quiet: idleLooks}
	after.free = 0 // goroutines of other tests may free some
	if m.look(after) {
		t.Errorf("it would be done again: %+v", after)
	}
}
