package mgmt

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/wire"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/policies"
	"github.com/curfewmq/curfew/sdk/hook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// keys are the keys of policies in tests, besides the keys of plugins.
var keys = func() (all []hook.Argument) {
	for name, low := range map[string]int64{"x-max-length": 0, "x-message-ttl": 0, "x-expires": 1} {
		check := hook.PolicyInt(low, math.MaxInt64, map[string]string{"x-message-ttl": "message TTL"}[name])
		limit := &hook.PolicyKey{Check: check, Operator: true, Merge: hook.TakeLower, Argument: hook.TakeLower}
		all = append(all, hook.Argument{Name: name, Policy: limit})
	}
	return all
}()

// expirations is a plugin that reads the expiration property.
type expirations struct{ hook.NoHooks }

func (expirations) CheckExpiration(raw []byte) (hook.Limit, error) {
	n, ok := hook.WholeText(raw)
	if !ok {
		return 0, errors.New("no_integer")
	}
	return hook.LimitOf(n), nil
}

// rig is a broker with its API, without a listener for it.
type rig struct {
	t      testing.TB
	api    *API
	alarms []string
	disk   *crashfs.FS
	broken bool // the disk has failed
}

func newRig(tb testing.TB, change ...func(*Options)) *rig {
	tb.Helper()
	return newRigWith(tb, nil, change...)
}

// newRigWith is newRig with plugins.
func newRigWith(tb testing.TB, plugins []chain.Named, change ...func(*Options)) *rig {
	tb.Helper()
	r := &rig{t: tb, disk: crashfs.New(1)}
	c, err := chain.New(append(plugins, chain.Named{Name: "expirations", Plugin: expirations{}}), chain.Options{})
	must(tb, err)
	rules := policies.NewRules(append(c.Arguments(), keys...), nil)
	clock, log := clock.New(), slog.New(slog.DiscardHandler)
	kept, err := store.Open(tb.Context(), store.Options{
		Dir: r.disk, SegmentSize: 1 << 20, Shards: 1, Bindings: 1000, Chain: c, Rules: rules, Clock: clock, Log: log, Hashing: auth.SHA512,
	})
	must(tb, err)
	server, err := wire.New(wire.Options{
		AMQP: "127.0.0.1:0", Clock: clock, HandshakeTimeout: time.Minute,
		Session: session.Options{
			Product: "Curfew", Version: "1.2.3", ClusterName: "curfew@test", Users: kept.Users(), VHosts: kept.VHost,
			ChannelMax: 100, FrameMax: 128 << 10, MessageMax: 16 << 20, Log: log,
		},
	})
	must(tb, err)
	must(tb, server.Start(tb.Context()))
	tb.Cleanup(func() {
		ctx := context.WithoutCancel(tb.Context()) // which has ended
		must(tb, server.Shutdown(ctx))
		if err := kept.Close(ctx); !r.broken {
			must(tb, err)
		}
	})
	o := Options{
		Product: "Curfew", Version: "1.2.3", Node: "curfew@test", Store: kept, AMQP: server, Rules: rules, Clock: clock, Log: log,
		Alarms:    func() []string { return r.alarms },
		Listeners: func() []Listener { return []Listener{{Protocol: "amqp", Address: server.Addresses()[0]}} },
		Machine: func() Machine {
			return Machine{Memory: 1 << 20, MemoryLimit: 1 << 30, DiskFree: 1 << 40, Files: 10, FilesLimit: 1000, Processors: 2, DataDir: "/data"}
		},
		RatesInterval: 5 * time.Second, BodyMax: 4 << 20, Session: 8 * time.Hour,
	}
	for _, f := range change {
		f(&o)
	}
	r.api = New(o)
	return r
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

const guest = "guest:guest"

// request makes a request of a user, "name:password"; "-" is no user.
func (r *rig) request(user, method, path, body string) *http.Request {
	q := httptest.NewRequest(method, path, strings.NewReader(body))
	q.RemoteAddr, q.Host = "127.0.0.1:9", "localhost:15672"
	if name, password, ok := strings.Cut(user, ":"); ok {
		q.SetBasicAuth(name, password)
	}
	return q
}

func (r *rig) serve(q *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r.api.ServeHTTP(w, q)
	return w
}

// do asks as guest and wants a status.
func (r *rig) do(status int, method, path, body string) string {
	r.t.Helper()
	w := r.serve(r.request(guest, method, path, body))
	if w.Code != status {
		r.t.Fatalf("%s %s: got %d %s, want %d", method, path, w.Code, w.Body, status)
	}
	return w.Body.String()
}

// definitionsUser returns an account.
func definitionsUser(name string, tags []string, password auth.Hash) auth.Account {
	return auth.Account{Name: name, Tags: tags, Password: password}
}
