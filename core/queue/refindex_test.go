package queue

import (
	"maps"
	"math/rand/v2"
	"testing"
)

func TestPlacesAgreeWithAMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	p, want := &refIndex{}, map[Ref]int32{}
	number := func() Ref { return ref(rng.IntN(3), uint64(rng.IntN(3000))) }
	for step := range 200_000 {
		r := number()
		place, ok := want[r]
		if got, is := p.get(r); is != ok || is && got != place {
			t.Fatalf("step %d: got %d, %v, want %d, %v", step, got, is, place, ok)
		}
		switch {
		case rng.IntN(5000) == 0:
			sum, count := int64(0), Ref(rng.IntN(8000))
			p.removeRun(r, count, func(place int32) { sum += int64(place) })
			maps.DeleteFunc(want, func(other Ref, place int32) bool {
				if other-r >= count {
					return false
				}
				sum -= int64(place)
				return true
			})
			if sum != 0 {
				t.Fatalf("step %d: other places were removed, the sum is %d off", step, sum)
			}
		case ok:
			p.remove(r)
			delete(want, r)
		default:
			p.add(r, int32(step))
			want[r] = int32(step)
		}
		if p.size != len(want) {
			t.Fatalf("step %d: %d are there, want %d", step, p.size, len(want))
		}
	}
}
