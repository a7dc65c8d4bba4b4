package session

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// diary is a plugin with an exchange type that holds messages for the milliseconds in their header "wait". A message replaces the one with
// the same "id", cancels it with "cancel", and is refused with "bad". diary counts how often it was asked. With the header "later", queues hold messages.
type diary struct {
	hook.NoHooks
	asked atomic.Int64
}

func (d *diary) ExchangeTypes() []hook.ExchangeType {
	return []hook.ExchangeType{{Name: "x-diary", Schedule: func(*hook.Exchange) hook.Schedule {
		return hook.Schedule{Inner: "direct", Plan: func(m *hook.Publishing, p *hook.Plan) error {
			d.asked.Add(1)
			if _, bad := m.Header("bad"); bad {
				return errors.New("invalid header 'bad'")
			}
			if n, ok := m.HeaderInt("wait"); ok {
				p.Hold = m.Now.AddMillis(n)
			}
			p.ID, _ = m.HeaderText("id")
			_, p.Cancel = m.Header("cancel")
			return nil
		}}
	}}}
}

func (*diary) HoldHeaders() []string { return []string{"later"} }

func (*diary) ReadHold(_ hook.Instant, values []any) (hook.Wait, error) {
	n, _ := hook.Int(values[0])
	return hook.Wait{After: n}, nil
}

// withDiary runs a test with a client of a vhost where the exchange "x" holds messages for the queue "q", with the key "k".
func withDiary(t *testing.T, test func(p *probe, d *diary)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		c, err := chain.New([]chain.Named{{Name: "diary", Plugin: d}}, chain.Options{})
		if err != nil {
			t.Fatal(err)
		}
		v := vhost.New(vhost.Config{Name: "/", Chain: c, Clock: clock.New(), Log: discard()})
		users := auth.New(auth.Options{Hashing: auth.SHA256})
		must(t, users.CreateDefaults())
		p := newProbe(t, func(o *Options) {
			o.VHosts, o.Users = func(string) (*vhost.VHost, bool) { return v, true }, users
		}).open().channel(1).channel(2)
		p.queue(1, "q")
		p.diaryExchange()
		p.sleep(0)
		test(p, d)
	})
}

func (p *probe) diaryExchange() {
	p.t.Helper()
	do[*amqp.ExchangeDeclareOK](p, 1, &amqp.ExchangeDeclare{Exchange: "x", Type: "x-diary"})
	do[*amqp.QueueBindOK](p, 1, &amqp.QueueBind{Queue: "q", Exchange: "x", RoutingKey: "k"})
}

// sleep sleeps, and tells the connection the time.
func (p *probe) sleep(d time.Duration) {
	time.Sleep(d)
	p.now = hook.Instant(time.Now().UnixNano())
}

// diaryMessage is a message to the exchange with the type of diary.
func diaryMessage(body string, mandatory bool, headers ...any) published {
	m := scheduled("x", body, mandatory, headers...)
	m.key = "k"
	return m
}

// The schedule used to be asked twice about each message, and each was routed anew.
func TestScheduleIsAskedOnce(t *testing.T) {
	withDiary(t, func(p *probe, d *diary) {
		const many = 10
		for range many {
			p.publish(1, diaryMessage("a", false, "wait", int32(1000)))
		}
		if n := d.asked.Load(); n != many {
			t.Errorf("asked %d times about %d messages", n, many)
		}
		p.sleep(999 * time.Millisecond)
		p.holds(1, "q", 0)
		p.sleep(2 * time.Millisecond)
		p.holds(1, "q", many)
	})
}

// Messages that the exchange does not hold never take the cached route of those that it holds, and vice versa.
func TestHeldAndRoutedMessagesAlternate(t *testing.T) {
	withDiary(t, func(p *probe, _ *diary) {
		p.publish(1,
			diaryMessage("1", false, "wait", int32(1000)), diaryMessage("2", false), diaryMessage("3", false, "wait", int32(1000)), diaryMessage("4", false, "wait", int32(0)),
			diaryMessage("5", false, "wait", int32(1000), "id", "a"), diaryMessage("6", false), diaryMessage("7", false, "wait", int32(1000), "id", "a"))
		p.holds(1, "q", 3)
		p.sleep(2 * time.Second)
		got := ""
		for range 6 {
			_, _, body := p.got(1, "q")
			got += body
		}
		if got != "246137" { // 7 replaced 5
			t.Errorf("got %s", got)
		}
		p.holds(1, "q", 0)
	})
}

// A route for messages that the exchange held is not used after a change that may send messages elsewhere, or refuse them.
func TestRouteOfHeldMessagesEnds(t *testing.T) {
	held := func(body string) published { return diaryMessage(body, false, "wait", int32(1000)) }
	for _, tc := range []struct {
		name string
		then func(p *probe)
		want uint32 // ready messages, of the two that were published before
	}{
		{"refused", func(p *probe) {
			p.publish(1, diaryMessage("bad", false, "bad", true))
			p.closed(1, 406, "PRECONDITION_FAILED - invalid header 'bad'")
			p.channel(1)
		}, 2},
		{"unbound and mandatory", func(p *probe) {
			do[*amqp.QueueUnbindOK](p, 1, &amqp.QueueUnbind{Queue: "q", Exchange: "x", RoutingKey: "k"})
			p.publish(1, held("c"), diaryMessage("back", true, "wait", int32(1000)))
			if got := p.answers(1); got != "312:back" {
				p.t.Errorf("got %q", got)
			}
			do[*amqp.QueueBindOK](p, 1, &amqp.QueueBind{Queue: "q", Exchange: "x", RoutingKey: "k"})
		}, 3},
		{"deleted", func(p *probe) {
			do[*amqp.ExchangeDeleteOK](p, 1, &amqp.ExchangeDelete{Exchange: "x"})
			p.publish(1, held("lost"))
			p.closed(1, 404, "NOT_FOUND - no exchange 'x' in vhost '/'")
			p.channel(1)
		}, 0},
		{"made anew", func(p *probe) {
			do[*amqp.ExchangeDeleteOK](p, 1, &amqp.ExchangeDelete{Exchange: "x"})
			p.diaryExchange()
			p.publish(1, held("new"))
		}, 1},
		{"replaced by another type", func(p *probe) {
			do[*amqp.ExchangeDeleteOK](p, 1, &amqp.ExchangeDelete{Exchange: "x"})
			p.exchange("x", "direct")
			do[*amqp.QueueBindOK](p, 1, &amqp.QueueBind{Queue: "q", Exchange: "x", RoutingKey: "k"})
			p.publish(1, held("at once"))
			p.holds(1, "q", 1)
		}, 1},
		{"no permission", func(p *probe) {
			p.grant(auth.Permissions{Configure: ".*", Write: "other", Read: ".*"})
			p.publish(1, held("forbidden"))
			p.closed(1, 403, "ACCESS_REFUSED - write access to exchange 'x' in vhost '/' refused for user 'guest'")
			p.channel(1)
		}, 2},
		{"more keys", func(p *probe) {
			p.queue(1, "copied")
			do[*amqp.QueueBindOK](p, 1, &amqp.QueueBind{Queue: "copied", Exchange: "x", RoutingKey: "c"})
			p.publish(1, diaryMessage("both", false, "wait", int32(1000), "CC", amqp.Array{"c"}))
			p.sleep(2 * time.Second)
			p.holds(1, "copied", 1)
		}, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			withDiary(t, func(p *probe, _ *diary) {
				p.publish(1, held("a"), held("b"))
				tc.then(p)
				p.sleep(2 * time.Second)
				p.holds(1, "q", tc.want)
			})
		})
	}
}

// If a message also goes to a queue, only the exchange's copy is held.
func TestHeldBesideAQueue(t *testing.T) {
	withDiary(t, func(p *probe, _ *diary) {
		p.exchange("first", "fanout")
		p.queue(1, "beside")
		do[*amqp.QueueBindOK](p, 1, &amqp.QueueBind{Queue: "beside", Exchange: "first"})
		do[*amqp.ExchangeBindOK](p, 1, &amqp.ExchangeBind{Destination: "x", Source: "first"})
		m := diaryMessage("a", false, "wait", int32(1000))
		m.exchange = "first"
		p.publish(1, m, m)
		p.holds(1, "beside", 2)
		p.holds(1, "q", 0)
		p.sleep(2 * time.Second)
		p.holds(1, "q", 2)
	})
}

// If a publisher asks for two holds, the later one counts, whichever kind it is.
func TestHeldByExchangeAndHeader(t *testing.T) {
	withDiary(t, func(p *probe, _ *diary) {
		p.publish(1, diaryMessage("a", false, "wait", int32(1000), "later", int32(2000)), diaryMessage("b", false, "wait", int32(2000), "later", int32(1000)),
			diaryMessage("c", false, "wait", int32(1000)))
		p.sleep(1500 * time.Millisecond)
		p.holds(1, "q", 1)
		p.sleep(time.Second)
		p.holds(1, "q", 3)
	})
}

// In a transaction a delay starts at the commit.
func TestHeldFromCommit(t *testing.T) {
	withDiary(t, func(p *probe, _ *diary) {
		do[*amqp.TxSelectOK](p, 1, &amqp.TxSelect{})
		p.publish(1, diaryMessage("a", false, "wait", int32(1000)), diaryMessage("b", false, "wait", int32(1000)))
		p.sleep(3 * time.Second)
		p.commit(1)
		p.holds(2, "q", 0)
		p.sleep(999 * time.Millisecond)
		p.holds(2, "q", 0)
		p.sleep(2 * time.Millisecond)
		p.holds(2, "q", 2)
	})
}

// A cancellation takes the route of the message that it cancels.
func TestCancellationOnAKnownRoute(t *testing.T) {
	withAgenda(t, func(p *probe) {
		p.sleep(0)
		p.publish(1, scheduled("x", "a", false, "id", "1"), scheduled("x", "b", false, "id", "1"))
		p.publish(1, scheduled("x", "c", false, "id", "1", "cancel", true))
		p.publish(1, scheduled("x", "d", false)) // goes at once
		p.holds(1, "q", 1)
		p.sleep(2 * time.Second)
		p.holds(1, "q", 1)
	})
}

// Messages with an identity but without a delay were routed in a later turn than others. If they came together they replaced and cancelled one
// another, and other messages overtook them.
func TestIdentitiesWithoutADelayKeepTheirPlace(t *testing.T) {
	for _, channel := range []uint16{1, 2, 3} {
		withDiary(t, func(p *probe, _ *diary) {
			switch channel {
			case 2:
				do[*amqp.ConfirmSelectOK](p, channel, &amqp.ConfirmSelect{})
			case 3:
				p.channel(channel)
				do[*amqp.TxSelectOK](p, channel, &amqp.TxSelect{})
			}
			p.publish(1, diaryMessage("waits", false, "wait", int32(1000), "id", "a"))
			const many = 40
			ms := make([]published, 0, 2*many)
			for i := range many {
				body := strconv.Itoa(i)
				switch i % 3 {
				case 0:
					ms = append(ms, diaryMessage(body, false, "id", "a"), diaryMessage("", false, "id", "a", "cancel", true))
				case 1:
					ms = append(ms, diaryMessage(body, true, "id", "a"))
				default:
					ms = append(ms, diaryMessage(body, false))
				}
			}
			p.publish(channel, ms...)
			switch channel {
			case 2:
				p.sleep(0)
				if got := p.answers(channel); strings.Contains(got, "-") || !strings.Contains(got, strconv.Itoa(len(ms))) {
					t.Errorf("%d were published, and answered by %s", len(ms), got)
				}
			case 3:
				p.commit(channel)
			}
			p.sleep(2 * time.Second)
			p.holds(1, "q", many)
			for i := range many {
				if _, _, body := p.got(1, "q"); body != strconv.Itoa(i) {
					t.Errorf("channel %d: %s came as number %d", channel, body, i)
				}
			}
		})
	}
}

// Messages with and without holds and identities, cancellations and transactions are mixed at random, over several exchanges and channels
// and with changes in between. Each message arrives once, when it should, and messages that need not wait arrive in the order in which they
// were published.
func TestMixedMessagesArriveInTime(t *testing.T) {
	for seed := range uint64(10) {
		withDiary(t, func(p *probe, _ *diary) {
			g := mixedGame{p: p, rng: rand.New(rand.NewPCG(seed, 37)), due: map[string]hook.Instant{}, named: map[string]string{}, immediate: map[string]bool{}}
			p.channel(3)
			do[*amqp.TxSelectOK](p, 3, &amqp.TxSelect{})
			p.exchange("first", "fanout")
			do[*amqp.ExchangeBindOK](p, 1, &amqp.ExchangeBind{Destination: "x", Source: "first"})
			for range 60 {
				for range g.rng.IntN(4) {
					g.publish()
				}
				g.receive()
				if g.rng.IntN(4) == 0 { // routes are looked up again
					p.queue(1, "other"+strconv.Itoa(g.rng.IntN(100)))
				}
				p.sleep(501 * time.Millisecond)
			}
			p.sleep(time.Minute)
			g.receive()
		})
	}
}

// mixedGame tracks the messages that were published and have not arrived.
type mixedGame struct {
	p     *probe
	rng   *rand.Rand
	count int
	due   map[string]hook.Instant // by body
	named map[string]string       // the bodies with an identity
	// immediate has the bodies of messages that were to be routed at once.
	immediate map[string]bool
}

// publish publishes some messages at once, as one pipelined batch or in a transaction.
func (g *mixedGame) publish() {
	channel := uint16(1 + g.rng.IntN(3))
	ms := make([]published, 1+g.rng.IntN(4))
	for i := range ms {
		ms[i] = g.message()
	}
	g.p.publish(channel, ms...)
	if channel == 3 {
		g.p.commit(3)
	}
}

func (g *mixedGame) message() published {
	g.count++
	body, headers, wait := strconv.Itoa(g.count), []any{}, int64(0)
	for _, name := range []string{"wait", "later"} {
		if g.rng.IntN(2) == 0 {
			n := 500 * g.rng.Int64N(8)
			headers, wait = append(headers, name, n), max(wait, n)
		}
	}
	at, cancels := g.p.now.AddMillis(wait), false
	if g.rng.IntN(3) == 0 {
		id := strconv.Itoa(g.rng.IntN(3))
		headers = append(headers, "id", id)
		if old := g.named[id]; g.due[old] >= g.p.now { // what is due leaves in another turn
			delete(g.due, old)
		}
		delete(g.named, id)
		if cancels = g.rng.IntN(4) == 0; cancels {
			headers = append(headers, "cancel", true)
		} else if wait > 0 {
			g.named[id] = body
		}
	}
	m := diaryMessage(body, !cancels && g.rng.IntN(4) == 0, headers...)
	if g.rng.IntN(3) == 0 {
		m.exchange = "first"
	}
	if !cancels {
		g.due[body], g.immediate[body] = at, wait == 0
	}
	return m
}

// receive takes the messages that have arrived, and compares them with those that are due.
func (g *mixedGame) receive() {
	g.p.t.Helper()
	g.p.sleep(time.Millisecond) // the other turn
	want, got := []string{}, []string{}
	for body, at := range g.due {
		if at <= g.p.now {
			want = append(want, body)
		}
	}
	g.p.holds(1, "q", uint32(len(want)))
	last := 0
	for range want {
		_, _, body := g.p.got(1, "q")
		got = append(got, body)
		delete(g.due, body)
		if n, _ := strconv.Atoi(body); g.immediate[body] {
			if n < last {
				g.p.t.Fatalf("%d came after %d, both of which were to be routed at once", n, last)
			}
			last = n
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		g.p.t.Fatalf("got %v, want %v", got, want)
	}
}
