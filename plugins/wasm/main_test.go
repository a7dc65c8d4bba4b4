package wasm

import (
	"log/slog"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// now is the time of most tests: some hour in 2023, with a fraction of a millisecond.
const now = hook.Instant(1_700_000_000_123_456_789)

// nowMillis is now as seen by guests.
const nowMillis = int64(now) / 1_000_000

// lines collects log lines.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lines) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// open returns an open host with the given number of instances per version. It does not try modules.
func open(tb testing.TB, slots int, env Env) *Host {
	tb.Helper()
	env.Trial = Untried
	return openTrying(tb, slots, env)
}

// openTrying returns a host that tries modules as env says.
func openTrying(tb testing.TB, slots int, env Env) *Host {
	tb.Helper()
	p := hooktest.New(tb, Factory, nil)
	h, _ := p.(*Host)
	h.slots = slots
	if err := h.Open(env); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := h.Close(); err != nil {
			tb.Error(err)
		}
		if left := h.memory.left.Load(); left != defaultTotalMemory {
			tb.Errorf("%d bytes of memory were not given back", defaultTotalMemory-left)
		}
	})
	return h
}

// load loads a module that must be accepted.
func load(tb testing.TB, h *Host, name string, module []byte, o Options) Info {
	tb.Helper()
	i, err := h.Load(name, module, o)
	if err != nil {
		tb.Fatal(err)
	}
	return i
}

// short is a module's digest as it is stored with messages.
func short(i Info) uint64 { return (&compiled{Manifest: Manifest{Digest: i.Digest}}).short() }

// queue is a queue that has chosen a policy.
func queue(policy string, settings map[string]any) *hooktest.Queue {
	return hooktest.NewQueue(hooktest.Spec{Strategy: prefix + policy, Settings: settings})
}

// entering1 calls a policy about one message that enters.
func enqueue1(hs hook.Hooks, at hook.Instant, m hook.Message) hook.Verdict {
	m.Enqueued = at
	vs := make([]hook.Verdict, 1)
	hs.OnEnqueue(at, hooktest.Messages(m), vs)
	return vs[0]
}

// head1 calls a policy about one queued message.
func head1(hs hook.Hooks, at hook.Instant, m hook.Message) hook.Verdict {
	vs := make([]hook.Verdict, 1)
	guest.Restore(&vs[0], &m)
	hs.OnHead(at, hooktest.Messages(m), vs)
	return vs[0]
}

// ttl is a module that keeps messages for a while, in milliseconds.
func ttl(millis int64) []byte {
	b := wt.New()
	b.Batch(8)
	b.Each(abi.OnEnqueue, wt.Keep(wt.LocalGet(wt.Record), wt.I64Load(abi.RecordEnqueued), wt.I64(millis), wt.I64Add))
	return b.Bytes()
}

// singleTTL is ttl with the hook that is called for one message at a time.
func singleTTL(millis int64) []byte {
	b := wt.New()
	b.Single()
	b.Has(abi.Deadline.String(), wt.LocalGet(0), wt.I64(millis), wt.I64Add)
	return b.Bytes()
}
