package vhost

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Dead letters for a full queue were reported as dead-lettered, and were nowhere.
func TestRefusedDeadLettersAreReported(t *testing.T) {
	for name, tc := range map[string]struct {
		overflow string
		want     map[telemetry.Outcome]uint64 // of messages that were rejected
		full     uint64                       // messages that the target dropped for its length
		second   bool                         // another queue takes all of them
		ready    int                          // in the target
	}{
		"reject-publish":                 {overflow: "reject-publish", ready: 3, want: map[telemetry.Outcome]uint64{telemetry.DeadLettered: 3, telemetry.Refused: 7}},
		"reject-publish, and another":    {overflow: "reject-publish", ready: 3, second: true, want: map[telemetry.Outcome]uint64{telemetry.DeadLettered: 10}},
		"reject-publish-dlx":             {overflow: "reject-publish-dlx", ready: 3, full: 7, want: map[telemetry.Outcome]uint64{telemetry.DeadLettered: 10}},
		"drop-head, which takes them in": {ready: 3, full: 7, want: map[telemetry.Outcome]uint64{telemetry.DeadLettered: 10}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v, _ := newVHost(t)
				v.host.telemetry = telemetry.New(telemetry.Options{Events: 100, Clock: v.clock})
				from := declare(t, v, "from", "x-dead-letter-exchange", "amq.fanout")
				var to *queue.Mailbox
				if tc.overflow == "" {
					to = declare(t, v, "to", "x-max-length", int64(3))
				} else {
					to = declare(t, v, "to", "x-refuse-above", int64(3), "x-overflow", tc.overflow)
				}
				bind(t, v, "amq.fanout", "to", "")
				if tc.second {
					declare(t, v, "second")
					bind(t, v, "amq.fanout", "second", "")
				}
				publish(from, numbered(0, 10)...)
				leave(t, from, queue.Reject)
				synctest.Wait()
				got := dead(v, hook.ReasonRejected)
				for o, n := range got {
					if n != tc.want[telemetry.Outcome(o)] {
						t.Errorf("%d are %s, want %d", n, telemetry.Outcome(o), tc.want[telemetry.Outcome(o)])
					}
				}
				if n := dead(v, hook.ReasonMaxLen)[telemetry.Dropped]; n != tc.full {
					t.Errorf("the target dropped %d, want %d", n, tc.full)
				}
				if n := statsOf(t, to).Ready; n != tc.ready {
					t.Errorf("the target has %d, want %d", n, tc.ready)
				}
				if !tc.second {
					return
				}
				named := strings.Join(entered(v.host.telemetry, telemetry.MessageDeadLettered), ", ")
				if a, b := strings.Count(named, "to"), strings.Count(named, "second"); a != 3 || b != 10 {
					t.Errorf("events name the queue that refused some %d times, and the other one %d times: %s", a, b, named)
				}
			})
		})
	}
}

// conservation is a vhost in which messages are published, rejected, redriven and consumed, and full queues follow their overflow rules.
// Each message that was taken in is in one place, or was reported lost once.
type conservation struct {
	t         *testing.T
	v         *VHost
	chance    *rand.Rand
	queues    []*queue.Mailbox
	published int
	nacked    int // of them, messages that a queue only refused
	consumed  map[string]int
}

func (c *conservation) declare(n int) {
	for i := range n {
		var args []any
		if c.chance.IntN(4) > 0 {
			limit := int64(c.chance.IntN(6))
			switch c.chance.IntN(3) {
			case 0:
				args = append(args, "x-max-length", limit)
			case 1:
				args = append(args, "x-refuse-above", limit, "x-overflow", "reject-publish")
			case 2:
				args = append(args, "x-refuse-above", limit, "x-overflow", "reject-publish-dlx")
			}
		}
		if c.chance.IntN(4) > 0 {
			args = append(args, "x-dead-letter-exchange", "", "x-dead-letter-routing-key", strconv.Itoa(c.chance.IntN(n)))
			if c.chance.IntN(2) == 0 {
				args = append(args, "x-at-least-once", true)
			}
		}
		c.queues = append(c.queues, declare(c.t, c.v, strconv.Itoa(i), args...))
	}
}

// nackCounter counts messages that its queue only refused.
type nackCounter struct{ nacked int }

func (p *nackCounter) Failed(*queue.Batch, error) {}
func (p *nackCounter) Confirmed(b *queue.Batch) {
	for i := range b.Messages {
		if b.Messages[i].Flags&queue.Refused != 0 {
			p.nacked++
		}
	}
}

func (c *conservation) publish(m *queue.Mailbox) {
	b, p := queue.NewBatch(), &nackCounter{}
	b.Publisher = p
	b.Messages = append(b.Messages, numbered(c.published, 1+c.chance.IntN(8))...)
	for i := range b.Messages {
		b.Messages[i].Seq = uint64(i + 1)
	}
	c.published += len(b.Messages)
	m.Publish(b)
	synctest.Wait()
	if overflow, _ := m.Config().Settings("overflow"); overflow == "reject-publish" {
		c.nacked += p.nacked // the others are dead-lettered or dropped
	}
}

func (c *conservation) step() {
	m := c.queues[c.chance.IntN(len(c.queues))]
	switch c.chance.IntN(6) {
	case 0, 1:
		c.publish(m)
	case 2, 3:
		leave(c.t, m, queue.Reject)
	case 4:
		to := c.queues[c.chance.IntN(len(c.queues))].Config().Name
		r := RedriveRequest{From: m.Config().Name, To: []RedriveTo{ToQueue, ToSource}[c.chance.IntN(2)], Queue: to}
		redrive(c.t, c.v, r)
	case 5:
		if got, ok := take(c.t, m); ok {
			c.consumed[got.body]++
		}
	}
	if c.chance.IntN(3) == 0 {
		time.Sleep(4 * time.Minute) // at-least-once dead letters are sent again
	}
	synctest.Wait()
}

// check compares the published messages with the places where they are.
func (c *conservation) check() {
	c.t.Helper()
	places := map[string]int{}
	for body, n := range c.consumed {
		places[body] += n
	}
	inside := 0
	for _, m := range c.queues {
		s := statsOf(c.t, m)
		inside += s.Ready + s.Unacked + s.Discarded
		scan := (*queue.Scan)(nil)
		must(c.t, m.Do(func(q *queue.Queue, _ hook.Instant) {
			scan = queue.NewScan(q)
			for done := false; !done; {
				done = scan.Next(q, func(s *queue.Stored) bool {
					must(c.t, s.Load())
					places[string(s.Body)]++
					return true
				})
			}
		}))
	}
	for body, n := range places {
		if n > 1 {
			c.t.Fatalf("message %s is in %d places", body, n)
		}
	}
	lost := 0
	for _, removals := range c.v.Stats().Removals {
		for _, byOutcome := range removals {
			for o, n := range byOutcome {
				switch telemetry.Outcome(o) {
				case telemetry.DeadLettered, telemetry.Routed, telemetry.Ready:
				default:
					lost += int(n)
				}
			}
		}
	}
	if all := inside + len(c.consumed) + lost + c.nacked; all != c.published {
		c.t.Fatalf("%d published, but %d inside, %d consumed, %d reported as lost, %d refused", c.published, inside, len(c.consumed), lost, c.nacked)
	}
}

// Refusals of each overflow mode, when messages are published, dead-lettered once and at least once, and redriven.
func TestEachMessageIsInOnePlace(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v, _ := newVHost(t)
				c := &conservation{t: t, v: v, chance: rand.New(rand.NewPCG(25, seed)), consumed: map[string]int{}}
				c.declare(2 + c.chance.IntN(4))
				for range 40 {
					c.step()
					c.check()
				}
			})
		})
	}
}
