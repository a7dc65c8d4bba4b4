package store

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/vfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

// clerk is a plugin with a fanout exchange that holds messages for as many milliseconds as their routing key says. A message with a
// type is released as often as that says, in steps of its delay.
type clerk struct{ hook.NoHooks }

func (clerk) ExchangeTypes() []hook.ExchangeType {
	return []hook.ExchangeType{{Name: "x-held", Schedule: func(*hook.Exchange) hook.Schedule {
		millis := func(m *hook.Publishing) int64 {
			n, _ := hook.WholeText([]byte(m.Key))
			return n
		}
		return hook.Schedule{
			Inner: "fanout",
			Plan: func(m *hook.Publishing, p *hook.Plan) error {
				p.Hold, p.ID = m.Now.AddMillis(millis(m)), m.Part(hook.PartMessageID)
				p.Cancel = string(m.Part(hook.PartAppID)) == "cancel"
				return nil
			},
			Released: func(m *hook.Publishing, r *hook.Release) {
				times, _ := hook.WholeText(m.Part(hook.PartType))
				if r.State++; r.State < times {
					r.Hold = r.Due.AddMillis(millis(m))
				}
			},
		}
	}}}
}

func clerks(t *testing.T, shards int) func(*Options) {
	t.Helper()
	return func(o *Options) {
		o.Shards = shards
		var err error
		o.Chain, err = chain.New([]chain.Named{{Name: "clerk", Plugin: clerk{}}}, chain.Options{})
		must(t, err)
	}
}

// schedule publishes a message to the exchange "x" and waits until it is confirmed.
func (k *kept) schedule(millis int, body string, p amqp.Properties, persistent bool) {
	k.t.Helper()
	must(k.t, <-k.scheduleAsync(millis, body, p, persistent))
}

func (k *kept) scheduleAsync(millis int, body string, p amqp.Properties, persistent bool) outcome {
	k.t.Helper()
	key, raw := strconv.Itoa(millis), p.Append(nil)
	queues, _, err := k.v.Route("x", &parts.Message{Key: key, Props: raw, Body: []byte(body)}, nil)
	must(k.t, err)
	o := make(outcome, 1)
	b := queue.NewBatch()
	m := queue.Message{Routing: &queue.RoutingInfo{Exchange: "x", Key: key}, Props: raw, Body: []byte(body), Seq: 1}
	if persistent {
		m.Flags = queue.Persistent
	}
	b.Messages, b.Publisher = append(b.Messages, m), o
	queues[0].Publish(b)
	return o
}

// held returns how many messages the exchange "x" holds.
func (k *kept) held() (n int) {
	k.t.Helper()
	m, err := k.v.Schedule("x")
	must(k.t, err)
	must(k.t, m.Do(func(q *queue.Queue, _ hook.Instant) { n = q.Stats().Held }))
	return n
}

func (k *kept) exchange(name string) {
	k.t.Helper()
	must(k.t, k.v.DeclareExchange(vhost.Exchange{Name: name, Type: "x-held", Durable: true}, nil))
	must(k.t, k.v.Bind(vhost.Binding{Source: name, Destination: "q"}, 0))
}

// identified are properties with a message ID, which is how the exchange knows a message.
func identified(id, appID string) amqp.Properties {
	p := amqp.Properties{MessageID: id, AppID: appID}
	p.Set(amqp.PropMessageID)
	if appID != "" {
		p.Set(amqp.PropAppID)
	}
	return p
}

// A durable exchange holds all that was confirmed across a loss of power, transient messages too. Each comes once and not early; what
// fell due meanwhile comes first, in order.
func TestHeldMessagesSurvive(t *testing.T) {
	for _, shards := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			disk := crashfs.New(uint64(shards))
			k := open(t, disk, clerks(t, shards))
			k.declare("q")
			k.exchange("x")
			k.exchange("other")
			const n = 2500 // more than a chunk, and more than a turn
			var all []outcome
			for i := range n {
				p := amqp.Properties{}
				if i%100 == 7 {
					p = identified(fmt.Sprint("id", i), "")
				}
				all = append(all, k.scheduleAsync(1000+7*i%3000, strconv.Itoa(i), p, true))
			}
			for _, o := range all {
				must(t, <-o)
			}
			k.schedule(1500, "transient", amqp.Properties{}, false)
			k.schedule(500, "moved", identified("id7", ""), false)
			k.schedule(0, "", identified("id107", "cancel"), false)
			if k.held() != n {
				t.Fatalf("%d are held, want %d", k.held(), n)
			}
			must(t, k.v.DeleteExchange("other", false))
			after := disk.LosePower()
			time.Sleep(1500*time.Millisecond + 1)
			k.end()

			k = open(t, after, clerks(t, shards))
			time.Sleep(time.Millisecond)
			if got := k.take(k.queue("q")); got != "moved" {
				t.Errorf("%d shards: first came %s", shards, got)
			}
			seen := map[string]int{}
			drain := func(upTo int) {
				last := -1
				for body := k.take(k.queue("q")); body != ""; body = k.take(k.queue("q")) {
					seen[body]++
					if body == "transient" {
						continue
					}
					i := 0
					_, _ = fmt.Sscan(body, &i)
					at := 1000 + 7*i%3000
					if at > upTo || at < last {
						t.Fatalf("%d shards: %s, due after %d ms, came after one due at %d, before %d", shards, body, at, last, upTo)
					}
					last = at
				}
			}
			time.Sleep(10 * time.Millisecond)
			drain(1511)
			if len(seen) < 100 || seen["transient"] != 1 {
				t.Errorf("%d shards: %d came that were due before the start", shards, len(seen))
			}
			k.schedule(0, "", identified("id207", "cancel"), false)
			time.Sleep(3 * time.Second)
			drain(4000)
			if len(seen) != n+1-3 || seen["7"]+seen["107"]+seen["207"] != 0 {
				t.Errorf("%d shards: %d came, want %d; cancelled ones %d", shards, len(seen), n+1-3, seen["7"]+seen["107"]+seen["207"])
			}
			for body, times := range seen {
				if times != 1 {
					t.Errorf("%d shards: %s came %d times", shards, body, times)
				}
			}
			k.close()
			k = open(t, after, clerks(t, shards))
			defer k.end()
			if k.held() != 0 {
				t.Errorf("%d shards: %d are held again", shards, k.held())
			}
		})
	}
}

// A message that recurs is released once for each point in time, whenever the power goes.
func TestRecurringMessagesSurvive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var disk vfs.FS = crashfs.New(1)
		k := open(t, disk, clerks(t, 1))
		k.declare("q")
		k.exchange("x")
		p := amqp.Properties{Type: "5"}
		p.Set(amqp.PropType)
		k.schedule(1000, "a", p, true)
		for i := range 8 {
			time.Sleep(700 * time.Millisecond)
			synctest.Wait()
			came := 0
			must(t, k.queue("q").Do(func(q *queue.Queue, _ hook.Instant) { came = q.Stats().Ready }))
			if want := min(5, (i+1)*7/10); came != want {
				t.Errorf("after %d ms: %d came, want %d", (i+1)*700, came, want)
			}
			after := disk.(*crashfs.FS).LosePower() //nolint:forcetypeassert // it is one
			k.end()
			disk = after
			k = open(t, disk, clerks(t, 1))
		}
		if k.held() != 0 {
			t.Errorf("%d are held", k.held())
		}
		k.end()
	})
}

// An exchange whose plugin is gone holds what it has, and releases it when the plugin is back.
func TestHeldMessagesWithoutTheirPlugin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := crashfs.New(1)
		k := open(t, disk, clerks(t, 1))
		k.declare("q")
		k.exchange("x")
		k.schedule(1000, "a", identified("1", ""), false)
		k.schedule(5000, "b", identified("2", ""), false)
		k.close()

		k = open(t, disk)
		time.Sleep(2 * time.Second)
		if _, _, err := k.v.Route("x", &parts.Message{}, nil); err == nil || !strings.Contains(err.Error(), "exchange type x-held not found") {
			t.Errorf("a message to the exchange: %v", err)
		}
		if k.held() != 2 || k.holds("q") != "" {
			t.Errorf("%d are held", k.held())
		}
		k.v.CompactDefinitions()
		k.close()

		k = open(t, disk, clerks(t, 1))
		defer k.end()
		time.Sleep(time.Millisecond)
		if got := k.holds("q"); got != "a" {
			t.Errorf("got %q when the plugin is back", got)
		}
		time.Sleep(3 * time.Second)
		if got := k.holds("q"); got != "b" {
			t.Errorf("then %q", got)
		}
	})
}

// Held messages are relocated out of old parts of the log, with their times.
func TestHeldMessagesAreRelocated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := crashfs.New(1)
		k := open(t, disk, clerks(t, 1))
		k.declare("q")
		k.exchange("x")
		k.schedule(3_600_000, "kept", identified("kept", ""), false)
		m, err := k.v.Schedule("x")
		must(t, err)
		more := true
		for more {
			must(t, m.Do(func(q *queue.Queue, _ hook.Instant) { more = q.Relocate(1 << 30) }))
			must(t, k.shard(1).WaitRelocated())
		}
		after := disk.LosePower()
		k.end()
		k = open(t, after, clerks(t, 1))
		defer k.end()
		if k.held() != 1 {
			t.Fatalf("%d are held", k.held())
		}
		k.schedule(0, "", identified("kept", "cancel"), false)
		if k.held() != 0 {
			t.Error("it has lost its ID")
		}
	})
}

// A deleted exchange takes what it held with it, across a restart, and one of its name has none of it.
func TestHeldMessagesGoWithTheirExchange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := crashfs.New(1)
		k := open(t, disk, clerks(t, 1))
		k.declare("q")
		k.exchange("x")
		k.schedule(1000, "a", amqp.Properties{}, true)
		must(t, k.v.DeleteExchange("x", false))
		k.exchange("x")
		k.schedule(2000, "b", amqp.Properties{}, true)
		after := disk.LosePower()
		k.end()
		k = open(t, after, clerks(t, 1))
		defer k.end()
		time.Sleep(5 * time.Second)
		if got := k.holds("q"); got != "b" {
			t.Errorf("got %q", got)
		}
	})
}
