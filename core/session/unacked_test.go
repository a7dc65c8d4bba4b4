package session

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/curfewmq/curfew/core/queue"
)

// books is a model of unacked: the unsettled deliveries in order.
type books struct{ all []taggedAck }

func (b *books) take(tag uint64) (queue.PendingAck, bool) {
	for i, t := range b.all {
		if t.tag == tag {
			b.all = slices.Delete(b.all, i, i+1)
			return t.PendingAck, true
		}
	}
	return queue.PendingAck{}, false
}

func (b *books) takeUpTo(tag uint64) ([]taggedAck, bool) {
	for i, t := range b.all {
		if t.tag == tag {
			taken := slices.Clone(b.all[:i+1])
			b.all = slices.Delete(b.all, 0, i+1)
			return taken, true
		}
	}
	return nil, false
}

func (b *books) restore(ts []taggedAck) {
	b.all = append(b.all, ts...)
	slices.SortFunc(b.all, func(x, y taggedAck) int { return int(x.tag) - int(y.tag) })
}

// unacked agrees with the model for any sequence of deliveries, settlements and rollbacks.
func TestUnacked(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	c := &queue.Consumer{}
	for range 200 {
		var u unacked
		var b books
		var settled []taggedAck
		next := uint64(0)
		someTag := func() uint64 {
			if len(b.all) > 0 && rnd.IntN(4) > 0 {
				return b.all[rnd.IntN(len(b.all))].tag
			}
			return rnd.Uint64N(next + 3)
		}
		for range 400 {
			switch rnd.IntN(10) {
			case 0, 1, 2, 3:
				for range rnd.IntN(20) {
					s := queue.PendingAck{Ref: queue.Ref(rnd.Uint64()), Consumer: c}
					next++
					if got := u.push(s); got != next {
						t.Fatalf("push: got tag %d, want %d", got, next)
					}
					b.all = append(b.all, taggedAck{next, s})
				}
			case 4:
				next++
				if got := u.skip(); got != next {
					t.Fatalf("skip: got tag %d, want %d", got, next)
				}
			case 5, 6, 7:
				tag := someTag()
				got, ok := u.take(tag)
				want, wantOK := b.take(tag)
				if got != want || ok != wantOK {
					t.Fatalf("take(%d): got %v, %v, want %v, %v", tag, got, ok, want, wantOK)
				}
				if ok {
					settled = append(settled, taggedAck{tag, got})
				}
			case 8:
				tag := someTag()
				got, ok := u.takeUpTo(tag, nil)
				want, wantOK := b.takeUpTo(tag)
				if !slices.Equal(got, want) || ok != wantOK {
					t.Fatalf("takeUpTo(%d): got %v, %v, want %v, %v", tag, got, ok, want, wantOK)
				}
				settled = append(settled, got...)
			case 9:
				if rnd.IntN(4) == 0 {
					u.restore(settled)
					b.restore(settled)
				}
				settled = nil
			}
			from, end := rnd.Uint64N(next+2), rnd.Uint64N(next+2)
			want := slices.DeleteFunc(slices.Clone(b.all), func(t taggedAck) bool { return t.tag < from || t.tag >= end })
			if got := slices.Collect(u.between(from, end)); !slices.Equal(got, want) {
				t.Fatalf("between(%d, %d): got %v, want %v", from, end, got, want)
			}
			lowest := uint64(0)
			if len(b.all) > 0 {
				lowest = b.all[0].tag
			}
			if got := u.lowest(); got != lowest {
				t.Fatalf("lowest: got %d, want %d", got, lowest)
			}
		}
		if got := u.takeAll(nil); !slices.Equal(got, b.all) {
			t.Fatalf("takeAll: got %v, want %v", got, b.all)
		}
		if u.ringUnacked != 0 || u.lowest() != 0 {
			t.Fatalf("left: %+v", u)
		}
	}
}

// A delivery that is never acknowledged does not take ever more memory while others come and go.
func TestUnackedStragglers(t *testing.T) {
	c := &queue.Consumer{}
	var u unacked
	for range 100_000 {
		u.push(queue.PendingAck{Consumer: c})
		if u.next%1000 != 1 {
			if _, ok := u.take(u.next); !ok {
				t.Fatal("not found")
			}
		}
		u.skip()
	}
	if len(u.ring) > maxRetainedRing || len(u.old) > 250 {
		t.Errorf("ring of %d, %d old for 200 unacknowledged", len(u.ring), len(u.old))
	}
	if got := len(u.takeAll(nil)); got != 200 {
		t.Errorf("got %d", got)
	}
}
