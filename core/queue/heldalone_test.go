package queue

import (
	"fmt"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

// A queue that held messages and had none that were ready ended the broker, if its strategy looks at the head of the highest level.
func TestAQueueMayHaveHeldMessagesAlone(t *testing.T) {
	ready := heldUntil(2, 0)
	for scan := hook.ScanAnywhere; scan <= hook.ScanLazy; scan++ {
		for name, leaves := range map[string]func(q *Queue){
			"never ready": func(q *Queue) { q.enqueue(second, batchOf(heldUntil(1, 5))) },
			"fetched":     func(q *Queue) { q.enqueue(second, batchOf(heldUntil(1, 5), ready)); takeOne(t, q, second) },
			"purged":      func(q *Queue) { q.enqueue(second, batchOf(heldUntil(1, 5), ready)); q.Purge(second) },
			"consumed": func(q *Queue) {
				q.enqueue(second, batchOf(heldUntil(1, 5), ready))
				consume(t, q, Consumer{NoAck: true}, 100)
			},
		} {
			for _, levels := range []int{0, 3} {
				t.Run(fmt.Sprintf("scan %d/%s/%d levels", scan, name, levels), func(t *testing.T) {
					hooks := holdHooks()
					hooks.Scan = scan
					q, _ := passive(t, Config{Profile: &Profile{Levels: levels}}, hooks)
					leaves(q)
					q.tick(second)
					if at := q.next(); at != 5*second {
						t.Errorf("the next turn is at %v, want the end of the hold", at)
					}
					q.tick(5 * second)
					if s := q.Stats(); s.Held != 0 {
						t.Errorf("%d are held after that", s.Held)
					}
				})
			}
		}
	}
}
