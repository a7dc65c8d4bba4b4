package metrics

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wire"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a broker whose collector has a clock that tests move.
type rig struct {
	t         testing.TB
	store     *store.Store
	server    *wire.Server
	collector *Collector
	now       atomic.Int64
	policies  []Policy
	faults    []chain.Fault
	alarms    []string

	certificates []Certificate
}

func newRig(tb testing.TB, queues int, plugins ...chain.Named) *rig {
	tb.Helper()
	r := &rig{t: tb}
	r.now.Store(1e18)
	clock := func() hook.Instant { return hook.Instant(r.now.Load()) }
	log := slog.New(slog.DiscardHandler)
	c, err := chain.New(plugins, chain.Options{})
	must(tb, err)
	recorder := telemetry.New(telemetry.Options{Clock: clock, Events: 16})
	r.store, err = store.Open(tb.Context(), store.Options{
		Dir: crashfs.New(1), SegmentSize: 1 << 20, Shards: 1, Chain: c, Clock: clock, Log: log, Hashing: auth.SHA512, Telemetry: recorder,
	})
	must(tb, err)
	r.server, err = wire.New(wire.Options{
		AMQP: "127.0.0.1:0", Clock: clock, HandshakeTimeout: time.Minute,
		Session: session.Options{
			Product: "Curfew", Version: "1.2.3", ClusterName: "curfew@test", Users: r.store.Users(), VHosts: r.store.VHost,
			ChannelMax: 100, FrameMax: 128 << 10, MessageMax: 16 << 20, Log: log, Telemetry: recorder,
		},
	})
	must(tb, err)
	must(tb, r.server.Start(tb.Context()))
	r.collector = New(Options{
		Version: "1.2.3", Commit: "c0ffee", RabbitMQ: "3.13.7", Node: "curfew@test", Cluster: func() string { return "tests" },
		Store: r.store, AMQP: r.server, Recorder: recorder, Clock: clock,
		Alarms: func() []string { return r.alarms }, Policies: func() []Policy { return r.policies },
		Faults: func() []chain.Fault { return r.faults }, Certificates: func() []Certificate { return r.certificates },
		Machine: func() Machine {
			return Machine{Memory: 1 << 20, MemoryLimit: 1 << 30, DiskFree: 1 << 40, Files: 10, FilesLimit: 1000}
		},
		Exported: func() (taken, lost uint64) { return 3, 4 },
		Queues:   queues,
	})
	tb.Cleanup(func() {
		ctx := context.WithoutCancel(tb.Context()) // which has ended
		must(tb, r.server.Shutdown(ctx))
		must(tb, r.store.Close(ctx))
	})
	return r
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// collect collects afresh.
func (r *rig) collect() *Collection {
	r.now.Add(int64(freshness))
	return r.collector.Collect()
}

// vhost returns a vhost that guest may use; it is created if it does not exist.
func (r *rig) vhost(name string) *vhost.VHost {
	r.t.Helper()
	_, err := r.store.AddVHost(name, vhost.Metadata{})
	must(r.t, err)
	_, err = r.store.Users().SetPermissions(auth.Grant{
		User: "guest", VHost: name, Permissions: auth.Permissions{Configure: ".*", Write: ".*", Read: ".*"},
	})
	must(r.t, err)
	v, _ := r.store.VHost(name)
	return v
}

// declare returns a queue.
func (r *rig) declare(v *vhost.VHost, name string) *queue.Mailbox {
	r.t.Helper()
	d, err := v.DeclareQueue(vhost.QueueDeclare{Name: name})
	must(r.t, err)
	return d.Mailbox
}

// dial connects a client. The returned function disconnects it and waits until it is gone.
func (r *rig) dial(vhost string) (*amqp.Channel, func()) {
	r.t.Helper()
	conn, err := amqp.DialConfig("amqp://guest:guest@"+r.server.Addresses()[0].String(), amqp.Config{Vhost: vhost, Heartbeat: time.Hour})
	must(r.t, err)
	ch, err := conn.Channel()
	must(r.t, err)
	return ch, func() {
		r.t.Helper()
		must(r.t, conn.Close())
		for r.server.Connections() > 0 { // the client does not wait until the server has closed its side
			runtime.Gosched()
		}
	}
}

// value returns the value of a series, given as `name` or as `name{label="value",…}` with the labels in order; ok is false if it
// does not exist.
func value(c *Collection, series string) (v float64, ok bool) {
	name, _, _ := strings.Cut(series, "{")
	for _, f := range c.Families {
		if f.Name != name {
			continue
		}
		for i := range f.Points {
			l := f.Points[i].Labels
			if l == nil {
				l = &Labels{}
			}
			if name+string(appendLabels(nil, l.Names, l.Values)) == series {
				return f.Points[i].Value, true
			}
		}
	}
	return 0, false
}

// want checks the value of a series.
func want(t *testing.T, c *Collection, series string, wanted float64) {
	t.Helper()
	switch got, ok := value(c, series); {
	case !ok:
		t.Errorf("there is no %s", series)
	case got != wanted:
		t.Errorf("%s is %v, want %v", series, got, wanted)
	}
}
