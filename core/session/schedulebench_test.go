package session

import (
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/slab"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// waiting is a plugin with a TTL that each message has in a header, for queues, and a delay for exchanges, in the same one.
type waiting struct{ hook.NoHooks }

func (waiting) Strategies() []string    { return []string{"waiting"} }
func (waiting) DefaultStrategy() string { return "waiting" }
func (waiting) CheckExpiration(raw []byte) (hook.Limit, error) {
	n, _ := hook.WholeText(raw)
	return hook.LimitOf(n), nil
}

func (waiting) Attach(hook.Queue) hook.Hooks {
	return hook.Hooks{
		Strategy: true, Shared: true,
		OnEnqueue: func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
			for i := range ms {
				if ms[i].Expiration.Set() {
					vs[i].Deadline = now.AddMillis(ms[i].Expiration.N())
				}
			}
		},
		OnHead: func(hook.Instant, []hook.Message, []hook.Verdict) {},
	}
}

func (waiting) ExchangeTypes() []hook.ExchangeType {
	return []hook.ExchangeType{{Name: "x-waiting", Schedule: func(*hook.Exchange) hook.Schedule {
		return hook.Schedule{Inner: "fanout", Plan: func(m *hook.Publishing, p *hook.Plan) error {
			n, _ := m.HeaderInt("x-delay")
			p.Hold = m.Now.AddMillis(n)
			p.ID, _ = m.HeaderText("x-schedule-id")
			return nil
		}}
	}}}
}

// Publishing a message that an exchange holds costs little more than one to a queue with a TTL.
func BenchmarkWaiting(b *testing.B) {
	for _, kind := range []string{"queue", "exchange"} {
		b.Run(kind, func(b *testing.B) {
			c, err := chain.New([]chain.Named{{Name: "waiting", Plugin: waiting{}}}, chain.Options{})
			if err != nil {
				b.Fatal(err)
			}
			v := vhost.New(vhost.Config{Name: "/", Chain: c, Clock: clock.New(), Log: discard()})
			r := newRig(b, func(o *Options) { o.VHosts = func(string) (*vhost.VHost, bool) { return v, true } })
			do[*amqp.ExchangeDeclareOK](r.probe, 1, &amqp.ExchangeDeclare{Exchange: "x", Type: "x-waiting"})
			r.now = hook.Instant(time.Now().UnixNano())
			var batches [][]byte
			for n := range 64 {
				var batch []byte
				for i := range 64 {
					m := hundredBytes()
					wait := int32(3_600_000 + (n*64+i)*7919%100_000)
					if kind == "exchange" {
						m.exchange, m.props.Headers = "x", amqp.Table{{Key: "x-delay", Value: wait}}
						m.props.Set(amqp.PropHeaders)
					} else {
						m.props.Expiration = strconv.Itoa(int(wait))
						m.props.Set(amqp.PropExpiration)
					}
					batch = append(batch, m.frames(1)...)
				}
				batches = append(batches, batch)
			}
			runtime.GC()
			var before runtime.MemStats
			runtime.ReadMemStats(&before)
			used := slab.Used()
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i += 64 {
				r.feed(batches[i/64%64])
				r.drain()
			}
			b.StopTimer()
			var after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc+uint64(slab.Used()-used))/float64(b.N), "B/message")
			runtime.KeepAlive(r)
		})
	}
}

// The question to a plugin was allocated for each message, twice.
func TestScheduledMessagesDoNotAllocate(t *testing.T) {
	if lossyPools {
		t.Skip("pools that lose things make new ones")
	}
	c, err := chain.New([]chain.Named{{Name: "waiting", Plugin: waiting{}}}, chain.Options{})
	if err != nil {
		t.Fatal(err)
	}
	v := vhost.New(vhost.Config{Name: "/", Chain: c, Clock: clock.New(), Log: discard()})
	r := newRig(t, func(o *Options) { o.VHosts = func(string) (*vhost.VHost, bool) { return v, true } })
	do[*amqp.ExchangeDeclareOK](r.probe, 1, &amqp.ExchangeDeclare{Exchange: "x", Type: "x-waiting"})
	const many = 64
	var batch []byte
	for i := range many {
		m := hundredBytes()
		m.exchange, m.props.Headers = "x", amqp.Table{{Key: "x-delay", Value: int32(3_600_000 + i)}}
		m.props.Set(amqp.PropHeaders)
		batch = append(batch, m.frames(1)...)
	}
	publish := func() {
		r.feed(batch)
		r.drain()
	}
	for range 200 { // memory that grows with the held messages
		publish()
	}
	if per := testing.AllocsPerRun(50, publish) / many; per > 0.5 {
		t.Errorf("%.2f allocations for a message", per)
	}
}
