package session

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/policies"
)

// extension is a message that extends a lease.
func extension(tag, extend any) published {
	m := published{key: "amq.lease", mandatory: true, body: "x", props: amqp.Properties{Headers: table("delivery-tag", tag, "extend", extend)}}
	m.props.Set(amqp.PropHeaders)
	return m
}

// returned expects a message that came back as unroutable.
func (p *probe) returned(channel uint16) {
	p.t.Helper()
	if m := expect[*amqp.BasicReturn](p, channel); m.ReplyCode != 312 || m.ReplyText != "NO_ROUTE" || m.RoutingKey != "amq.lease" {
		p.t.Errorf("got %+v", m)
	}
	p.content(channel)
}

func TestExtendedLease(t *testing.T) {
	withLeases(t, func(p *leaseProbe) {
		p.queue(1, "q", "x-delivery-lease", int32(1000))
		p.consume(1, "q", "c")
		p.publish(2, bodies("q", "1", "2")...)
		p.delivers(1, "c1:1 c2:2")
		p.wait(900 * time.Millisecond)
		p.publish(1, extension(int64(1), int32(1000)))
		p.silent()
		p.wait(100 * time.Millisecond)
		p.delivers(1, "c3:2*")
		p.wait(900*time.Millisecond - 1)
		p.publish(1, extension("1", 5000.0)) // as numbers in other headers
		p.wait(time.Second)
		p.delivers(1, "c4:2*")
		p.send(1, &amqp.BasicAck{DeliveryTag: 4})
		p.wait(4*time.Second - 1)
		p.silent()
		p.publish(1, extension(int64(1), int32(10))) // sooner is possible, too
		p.wait(1)
		p.silent()
		p.wait(10 * time.Millisecond)
		p.delivers(1, "c5:1*")
		p.publish(1, extension(int64(1), int32(1000)))
		p.returned(1)
		unmandatory := extension(int64(1), int32(1000))
		unmandatory.mandatory = false
		p.publish(1, unmandatory, extension(int64(77), int32(1000)))
		p.returned(1)
		p.silent()
		p.has("q", 0, 1)
	})
}

// An extension on another channel, or after the settlement, has no effect, and does not touch another delivery with the same tag.
func TestOnlyOwnLeasesAreExtended(t *testing.T) {
	withLeases(t, func(p *leaseProbe) {
		p.queue(1, "q", "x-delivery-lease", int32(1000))
		p.consume(1, "q", "c")
		p.publish(2, bodies("q", "1")...)
		p.delivers(1, "c1:1")
		p.publish(2, extension(int64(1), int32(5000)))
		p.returned(2)
		p.wait(time.Second)
		p.delivers(1, "c2:1*")
		p.send(1, &amqp.BasicAck{DeliveryTag: 2})
		p.publish(1, extension(int64(2), int32(5000)))
		p.returned(1)
	})
}

// A delivery without a lease is held as long as its channel lasts. Extending it has no effect.
func TestExtendWithoutLease(t *testing.T) {
	withLeases(t, func(p *leaseProbe) {
		p.queue(1, "q")
		p.consume(1, "q", "c")
		p.publish(2, bodies("q", "1")...)
		p.delivers(1, "c1:1")
		p.publish(1, extension(int64(1), int32(10)))
		p.wait(time.Hour)
		p.silent()
		p.has("q", 0, 1)
	})
}

// After a policy had removed the lease from a consumer's later deliveries, extending an earlier delivery had no effect: it came back.
func TestExtendAfterThePolicyChanged(t *testing.T) {
	withLeases(t, func(p *leaseProbe) {
		v := p.conn.vhost
		policy, err := policies.NewRules(nil, nil).Parse(policies.User, "p", []byte(`{"pattern": "q", "definition": {"delivery-lease": 1000}}`))
		if err != nil {
			t.Fatal(err)
		}
		apply := func(on bool) {
			t.Helper()
			var err error
			if on {
				_, err = v.SetPolicy(policies.User, policy)
			} else {
				_, err = v.ClearPolicy(policies.User, "p")
			}
			if err != nil {
				t.Fatal(err)
			}
			p.wait(0)
		}
		p.queue(1, "q")
		p.queue(1, "q-get")
		do[*amqp.BasicConsumeOK](p.probe, 1, &amqp.BasicConsume{Queue: "q", ConsumerTag: "c"})
		deliver := func(tag string) {
			t.Helper()
			p.publish(2, bodies("q", tag)...)
			p.delivers(1, "c"+tag+":"+tag)
		}
		deliver("1")
		apply(true)
		deliver("2")
		apply(false)
		deliver("3")
		apply(true)
		deliver("4")
		for tag := range 4 {
			p.publish(1, extension(int64(tag+1), int32(5000)))
		}
		p.wait(5*time.Second - 1)
		p.silent()
		p.wait(1)
		p.delivers(1, "c5:2* c6:4*")
		p.has("q", 0, 4)
	})
}

// An extension is confirmed like any message. If it is mandatory and the delivery is not held, it is returned first.
func TestExtensionsAreConfirmed(t *testing.T) {
	withLeases(t, func(p *leaseProbe) {
		p.queue(1, "q", "x-delivery-lease", int32(1000))
		do[*amqp.ConfirmSelectOK](p.probe, 1, &amqp.ConfirmSelect{})
		p.consume(1, "q", "c")
		p.publish(2, bodies("q", "1")...)
		p.delivers(1, "c1:1")
		p.publish(1, extension(int64(1), int32(5000)))
		if m := expect[*amqp.BasicAck](p.probe, 1); m.DeliveryTag != 1 {
			t.Errorf("got %+v", m)
		}
		p.publish(1, extension(int64(2), int32(5000)))
		p.returned(1)
		if m := expect[*amqp.BasicAck](p.probe, 1); m.DeliveryTag != 2 {
			t.Errorf("got %+v", m)
		}
		p.publish(1, bodies("q", "2")...)
		p.delivers(1, "c2:2")
	})
}

// Transactions can be long, so the leases of deliveries are extended at once in a transaction, including those that it has settled.
func TestExtendInATransaction(t *testing.T) {
	withLeases(t, func(p *leaseProbe) {
		p.queue(1, "q", "x-delivery-lease", int32(1000))
		do[*amqp.TxSelectOK](p.probe, 1, &amqp.TxSelect{})
		p.consume(1, "q", "c")
		p.publish(2, bodies("q", "1", "2", "3")...)
		p.delivers(1, "c1:1 c2:2 c3:3")
		do[*amqp.BasicCancelOK](p.probe, 1, &amqp.BasicCancel{ConsumerTag: "c"})
		p.send(1, &amqp.BasicAck{DeliveryTag: 1}, &amqp.BasicAck{DeliveryTag: 2})
		p.publish(1, extension(int64(1), int32(5000)), extension(int64(3), int32(5000)))
		p.silent()
		p.wait(4 * time.Second)
		p.has("q", 1, 2)
		p.send(1, &amqp.BasicAck{DeliveryTag: 3})
		p.commit(1)
		p.has("q", 1, 0)
		p.wait(time.Hour)
		p.has("q", 1, 0)
		p.ended("q", 1)
	})
}

// A consumer without permission to publish can extend its leases.
func TestExtendNeedsNoPermission(t *testing.T) {
	withLeases(t, func(p *leaseProbe) {
		p.queue(1, "q", "x-delivery-lease", int32(1000))
		p.publish(2, bodies("q", "1")...)
		p.grant(auth.Permissions{Read: "^q$"})
		p.consume(1, "q", "c")
		p.delivers(1, "c1:1")
		p.publish(1, extension(int64(1), int32(5000)))
		p.wait(5*time.Second - 1)
		p.silent()
		p.publish(2, published{key: "q"})
		p.closed(2, 403, "ACCESS_REFUSED - write access to exchange 'amq.default' in vhost '/' refused for user 'guest'")
	}, ownUsers(t))
}

func TestInvalidExtensions(t *testing.T) {
	const tag, extend = "the tag of a delivery, 1 or more", "1 to 315360000000 milliseconds"
	for _, tt := range []struct {
		name    string
		headers amqp.Table
		header  string
		want    string
	}{
		{"no headers", nil, "delivery-tag", tag + ", got none"},
		{"no tag", table("extend", int32(1)), "delivery-tag", tag + ", got none"},
		{"all tags", table("delivery-tag", int32(0), "extend", int32(1)), "delivery-tag", tag + ", got 0"},
		{"text", table("delivery-tag", "one", "extend", int32(1)), "delivery-tag", tag + ", got longstr"},
		{"a boolean as tag", table("delivery-tag", true, "extend", int32(1)), "delivery-tag", tag + ", got bool"},
		{"a boolean", table("delivery-tag", int32(1), "extend", true), "extend", extend + ", got bool"},
		{"a timestamp", table("delivery-tag", int32(1), "extend", amqp.Timestamp(5)), "extend", extend + ", got timestamp"},
		{"a fraction", table("delivery-tag", int32(1), "extend", 1.5), "extend", extend + ", got double"},
		{"no time", table("delivery-tag", int32(1)), "extend", extend + ", got none"},
		{"zero", table("delivery-tag", int32(1), "extend", int32(0)), "extend", extend + ", got 0"},
		{"negative", table("delivery-tag", int32(1), "extend", int64(-1<<63)), "extend", extend + ", got -9223372036854775808"},
		{"too long", table("delivery-tag", int32(1), "extend", int64(315_360_000_001)), "extend", extend + ", got 315360000001"},
		{"table", table("delivery-tag", int32(1), "extend", amqp.Table{}), "extend", extend + ", got table"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withLeases(t, func(p *leaseProbe) {
				p.queue(1, "q", "x-delivery-lease", int32(1000))
				p.consume(2, "q", "c")
				p.publish(1, bodies("q", "1")...)
				p.delivers(2, "c1:1")
				m := published{key: "amq.lease"}
				if tt.headers != nil {
					m.props.Headers = tt.headers
					m.props.Set(amqp.PropHeaders)
				}
				p.publish(2, m)
				p.closed(2, 406, "PRECONDITION_FAILED - invalid header '"+tt.header+"' of a message to 'amq.lease': expected "+tt.want)
				p.has("q", 1, 0)
			})
		})
	}
}

// No queue can intercept messages to amq.lease.
func TestNoQueueHasTheNameOfLeases(t *testing.T) {
	p := newProbe(t).open().channel(1)
	p.send(1, &amqp.QueueDeclare{Queue: "amq.lease"})
	p.closed(1, 403, "ACCESS_REFUSED - queue name 'amq.lease' contains reserved prefix 'amq.*'")
}

// Whatever a client settles, extends or ignores, each lease ends exactly at its time, and each message is in exactly one place.
func TestLeasesAndTheirEnds(t *testing.T) {
	withLeases(t, func(p *leaseProbe) {
		rnd := rand.New(rand.NewPCG(3, 4))
		p.queue(1, "q", "x-delivery-lease", int32(1000))
		do[*amqp.BasicConsumeOK](p.probe, 1, &amqp.BasicConsume{Queue: "q", ConsumerTag: "c"})
		do[*amqp.BasicConsumeOK](p.probe, 1, &amqp.BasicConsume{Queue: "q", ConsumerTag: "d", Arguments: table("x-delivery-lease", int32(70))})
		do[*amqp.BasicConsumeOK](p.probe, 1, &amqp.BasicConsume{Queue: "q", ConsumerTag: "e", Arguments: table("x-delivery-lease", int32(0))})
		lease := map[string]time.Duration{"c": time.Second, "d": 70 * time.Millisecond, "e": 1 << 60}
		ends := map[uint64]time.Time{} // of held deliveries
		settled, begun := 0, time.Now()
		look := func() {
			t.Helper()
			for len(p.out) > 0 {
				m := expect[*amqp.BasicDeliver](p.probe, 1)
				p.content(1)
				ends[m.DeliveryTag] = time.Now().Add(lease[m.ConsumerTag])
			}
		}
		total := 0
		for range 3000 {
			held := slices.Sorted(maps.Keys(ends))
			switch n := rnd.IntN(10); {
			case n < 3:
				k := 1 + rnd.IntN(5)
				p.publish(2, bodies("q", make([]string, k)...)...)
				total += k
			case n < 5 && len(held) > 0:
				tag := held[rnd.IntN(len(held))]
				p.send(1, &amqp.BasicAck{DeliveryTag: tag})
				delete(ends, tag)
				settled++
			case n < 6 && len(held) > 0:
				last := held[rnd.IntN(len(held)/4+1)]
				p.send(1, &amqp.BasicAck{DeliveryTag: last, Multiple: true})
				for _, tag := range held {
					if tag <= last {
						delete(ends, tag)
						settled++
					}
				}
			case n < 7 && len(held) > 0:
				tag, by := held[rnd.IntN(len(held))], 1+rnd.IntN(2000)
				p.publish(1, extension(int64(tag), int32(by)))
				if ends[tag].Sub(begun) < 1<<59 {
					ends[tag] = time.Now().Add(time.Duration(by) * time.Millisecond)
				}
			case n < 8: // what is not held any more
				if tag := rnd.Uint64N(p.conn.channels.at(1).deliveries.unsettled.tags.next + 1); tag > 0 && ends[tag].IsZero() {
					p.publish(1, extension(int64(tag), int32(1)))
					p.returned(1)
				}
			default:
				p.wait(time.Duration(rnd.IntN(100)) * time.Millisecond)
				for tag, end := range ends {
					if !end.After(time.Now()) {
						delete(ends, tag)
					}
				}
			}
			look()
			var got []uint64
			for u := range p.conn.channels.at(1).deliveries.unsettled.tags.between(0, p.conn.channels.at(1).deliveries.unsettled.tags.next+1) {
				got = append(got, u.tag)
			}
			if want := slices.Sorted(maps.Keys(ends)); !slices.Equal(got, want) {
				t.Fatalf("held: %d, want %d", got, want)
			}
			if s := p.stats("q"); s.Ready+s.Unacked+int(s.Acked) != total || int(s.Acked) != settled {
				t.Fatalf("%d ready, %d unacknowledged, %d acked of %d; %d were settled", s.Ready, s.Unacked, s.Acked, total, settled)
			}
		}
		if ended := p.stats("q").LeasesEnded; ended < 1000 {
			t.Errorf("only %d leases ended", ended)
		}
	})
}
