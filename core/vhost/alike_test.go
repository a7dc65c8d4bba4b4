package vhost

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/death"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// The outcome of dead letters does not depend on which of them leave together.
func TestTogetherAsOneByOne(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v, _ := newVHost(t)
				from := declare(t, v, "from")
				declareTargets(t, v)
				ds := mixed(t, rand.New(rand.NewPCG(seed, 0)))
				alone := make([]queue.DeadLetter, len(ds))
				copy(alone, ds)
				for i := range alone {
					v.QueueHost().DeadLetter(from.Config(), second, alone[i:i+1], queue.Tracking{})
					synctest.Wait()
				}
				want := all(t, v)
				v.QueueHost().DeadLetter(from.Config(), second, ds, queue.Tracking{})
				synctest.Wait()
				if got := all(t, v); !reflect.DeepEqual(got, want) {
					t.Errorf("got\n%.2000s\nwant\n%.2000s", fmt.Sprint(got), fmt.Sprint(want))
				}
				for i := range ds {
					if ds[i].Outcome != alone[i].Outcome || ds[i].Sent != alone[i].Sent {
						t.Errorf("message %d: %v in %d queues, alone %v in %d", i, ds[i].Outcome, ds[i].Sent, alone[i].Outcome, alone[i].Sent)
					}
				}
			})
		})
	}
}

const second = hook.Instant(1e9)

// declareTargets declares the queues and exchanges that mixed is dead-lettered to.
func declareTargets(t *testing.T, v *VHost) {
	t.Helper()
	for _, q := range []string{"a", "b", "copy", "blind"} {
		declare(t, v, q)
	}
	exchangeOf(t, v, "headers", "headers")
	bind(t, v, "headers", "a", "", "x-match", "any", "mine", "1")
	bind(t, v, "headers", "b", "", "x-match", "all-with-x", "x-last-death-reason", "rejected")
	bind(t, v, "amq.fanout", "from", "")
	bind(t, v, "amq.fanout", "a", "")
}

// mixed returns dead letters. Many are alike the one before, some almost.
func mixed(t *testing.T, r *rand.Rand) []queue.DeadLetter {
	t.Helper()
	targets := []*hook.Target{
		{}, {Key: "b", HasKey: true}, {Exchange: "headers"}, {Exchange: "amq.fanout"}, {Exchange: "none"}, {Key: "no queue", HasKey: true}, {Key: "from", HasKey: true},
	}
	sort := kinds(t)
	one := queue.DeadLetter{Props: sort[0], Reason: hook.ReasonExpired, Target: targets[0], Key: []byte("a")}
	ds := make([]queue.DeadLetter, 0, 200)
	for i := range cap(ds) {
		switch r.IntN(30) {
		case 0, 1:
			one.Target = targets[r.IntN(len(targets))]
		case 2, 3, 4:
			n := r.IntN(len(sort))
			one.Props, one.Flags = sort[n], one.Flags&^queue.HasDeathHistory
			if n >= len(sort)/2 {
				one.Flags |= queue.HasDeathHistory
			}
		case 5:
			one.Key = []byte{"ab"[r.IntN(2)]}
		case 6:
			one.Reason = []hook.Reason{hook.ReasonExpired, hook.ReasonRejected}[r.IntN(2)]
		case 7:
			one.Flags ^= queue.Persistent
		case 8:
			one.BCC = [][]string{nil, nil, {"blind"}}[r.IntN(3)]
		case 9:
			one.Exchange = [][]byte{nil, []byte("x")}[r.IntN(2)]
		case 10:
			one.Flags ^= queue.HasDeathHistory // an x-death header then counts for nothing, or is not there
		}
		d := one
		d.Props = bytes.Clone(d.Props)
		d.Body = fmt.Append(nil, i)
		if r.IntN(20) == 0 {
			d.Body = append(d.Body, make([]byte, r.IntN(100_000))...)
		}
		ds = append(ds, d)
	}
	return ds
}

// kinds returns properties. The second half are those of the first half after a death.
func kinds(t *testing.T) (all [][]byte) {
	t.Helper()
	for _, p := range []amqp.Properties{
		{},
		{Headers: args("mine", "1")},
		{Headers: args("mine", "2")},
		{Headers: args("CC", amqp.Array{"copy"})},
		{Priority: 3, MessageID: "one"},
		{Priority: 4, MessageID: "two", Expiration: "100"},
	} {
		for prop, there := range map[amqp.Property]bool{
			amqp.PropHeaders: p.Headers != nil, amqp.PropPriority: p.Priority > 0, amqp.PropMessageID: p.MessageID != "", amqp.PropExpiration: p.Expiration != "",
		} {
			if there {
				p.Set(prop)
			}
		}
		all = append(all, p.Append(nil))
	}
	var r death.Recorder
	r.Prepare(death.Death{Queue: "from", Reason: hook.ReasonExpired, Keys: [][]byte{[]byte("a")}})
	for _, p := range all {
		after, err := r.Append(nil, p, false)
		must(t, err)
		all = append(all, after)
	}
	return all
}

// all returns the messages that arrived, by queue.
func all(t *testing.T, v *VHost) map[string][]got {
	t.Helper()
	arrived := map[string][]got{}
	for _, s := range v.Queues() {
		arrived[s.Config().Name] = drain(t, s)
	}
	return arrived
}
