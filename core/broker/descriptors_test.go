package broker

import "testing"

func TestClientDescriptors(t *testing.T) {
	for limit, want := range map[int]int{0: 0, 32: 0, 100: 68, 1024: 960, 20_000: 18_976, 1 << 20: 1<<20 - 1024} {
		if got := clientDescriptors(limit); got != want {
			t.Errorf("of %d: got %d, want %d", limit, got, want)
		}
	}
}

// A node whose clients had used up their descriptors answered no health check, so that a load balancer took it for dead.
func TestOperatorDescriptors(t *testing.T) {
	for limit, want := range map[int]int{0: 0, 32: 0, 100: 76, 200: 176, 1024: 976, 1 << 20: 1<<20 - 768} {
		if got := operatorDescriptors(limit); got != want {
			t.Errorf("of %d: got %d, want %d", limit, got, want)
		}
	}
}
