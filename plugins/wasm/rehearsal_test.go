package wasm

import (
	"errors"
	"strings"
	"testing"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

func rehearse(t *testing.T, h *Host, c *Candidate) *Rehearsal {
	t.Helper()
	r, err := h.Rehearse(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// A rehearsal decides as the policies do, and nothing of it is left.
func TestRehearsal(t *testing.T) {
	h := open(t, 1, Env{})
	load(t, h, "real", ttl(1000), Options{})
	shade, err := h.Shadow("shade", ttl(2000), Options{}, "wasm/real")
	if err != nil {
		t.Fatal(err)
	}
	r := rehearse(t, h, nil)
	if got := enqueue1(r.Attach(queue("real", nil)), now, hook.Message{}); got.Deadline != now.AddMillis(1000) {
		t.Errorf("got %+v", got)
	}
	o := r.Opinions()
	if len(o) != 1 || o[0].Policy != "shade" || o[0].Digest != shade.Digest || !o[0].Differs || o[0].Shadow.Deadline != now.AddMillis(2000) || o[0].InForce.Deadline != now.AddMillis(1000) {
		t.Errorf("got %+v", o)
	}
	if len(r.Opinions()) > 0 || len(r.Notes()) > 0 {
		t.Error("what was taken is still there")
	}
	r.Close()
	for _, i := range h.List() {
		if i.Calls+i.Messages+i.FuelUsed > 0 || i.Shadow != nil && i.Shadow.Compared > 0 || i.Instances != 1 {
			t.Errorf("the policies remember the rehearsal: %+v", i)
		}
	}
	if d := differencesOf(t, h, "shade", 0, 1); len(d.Latest) > 0 {
		t.Errorf("got %+v", d)
	}
}

func TestRehearsalOfCandidates(t *testing.T) {
	h := openTrying(t, 1, Env{})
	load(t, h, "real", ttl(1000), Options{})
	if _, err := h.Shadow("shade", ttl(2000), Options{}, "deadline"); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name      string
		candidate Candidate
		strategy  string
		want      int64 // milliseconds
		opinion   int64 // 0: none
	}{
		{"a module", Candidate{Name: "fresh", Module: ttl(3000)}, "wasm/fresh", 3000, 0},
		{"in place of one that is loaded", Candidate{Name: "real", Module: ttl(3000)}, "wasm/real", 3000, 0},
		{"beside one that is loaded", Candidate{Name: "fresh", Module: ttl(3000), Beside: "wasm/real"}, "wasm/real", 1000, 3000},
		{"a shadow as the strategy", Candidate{Name: "shade"}, "wasm/shade", 2000, 0},
		{"a strategy as a shadow", Candidate{Name: "real", Beside: "wasm/real"}, "wasm/real", 1000, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := rehearse(t, h, &tc.candidate)
			if got := strings.Join(r.Strategies(), " "); tc.candidate.Beside == "" && !strings.Contains(got, tc.strategy) {
				t.Errorf("there are %s", got)
			}
			got := enqueue1(r.Attach(hooktest.NewQueue(hooktest.Spec{Strategy: tc.strategy})), now, hook.Message{})
			if got.Deadline != now.AddMillis(tc.want) {
				t.Errorf("got %+v, want %d ms", got, tc.want)
			}
			if o := r.Opinions(); tc.opinion == 0 && len(o) > 0 || tc.opinion > 0 && (len(o) != 1 || o[0].Shadow.Deadline != now.AddMillis(tc.opinion)) {
				t.Errorf("got %+v", o)
			}
			if i, ok := r.Info(); !ok || i.Name != tc.candidate.Name || i.Digest == "" || (i.Strategy == "") != (tc.candidate.Beside != "") {
				t.Errorf("got %+v", i)
			}
		})
	}
	if got := strings.Join(h.Strategies(), " "); got != "wasm/real" {
		t.Errorf("candidates have become strategies: %s", got)
	}
	for _, wrong := range []struct {
		candidate Candidate
		want      string
	}{
		{Candidate{Name: "none"}, "there is no such policy"},
		{Candidate{Name: "No", Module: ttl(1)}, "is not accepted"},
		{Candidate{Name: "a", Module: []byte("x")}, "not a WebAssembly module"},
		{Candidate{Name: "a", Module: ttl(1), Options: Options{Grants: []string{"x"}}}, `"x" is not a grant`},
	} {
		if _, err := h.Rehearse(&wrong.candidate); err == nil || !strings.Contains(err.Error(), wrong.want) {
			t.Errorf("%+v: got %v", wrong.candidate, err)
		}
	}
	if _, err := h.Rehearse(&Candidate{Name: "none"}); !errors.Is(err, ErrUnknown) {
		t.Errorf("got %v", err)
	}
}

// A module that traps fails in the rehearsal alone, which says why.
func TestRehearsalOfAModuleThatTraps(t *testing.T) {
	h := open(t, 1, Env{})
	b := wt.New()
	b.Batch(8)
	b.Each(abi.OnEnqueue, wt.Unreachable)
	info := load(t, h, "bad", b.Bytes(), Options{})
	r := rehearse(t, h, nil)
	hs := r.Attach(queue("bad", map[string]any{"message-ttl": int64(7)}))
	for range 10 { // more often than a breaker lets pass
		if got := enqueue1(hs, now, hook.Message{}); got.Deadline != now.AddMillis(7) {
			t.Errorf("got %+v, want what on-error says", got)
		}
		if n := r.Notes(); len(n) != 1 || !strings.Contains(n[0], "bad failed") {
			t.Errorf("got %q", n)
		}
	}
	if i, _ := h.Info("bad"); i.Breaker != "closed" || i.Errors["trap"] > 0 || i.Digest != info.Digest {
		t.Errorf("got %+v", i)
	}
}

// A broker that ends closes the host while a simulation may still run. The rehearsal's instances stay until it ends: a guest whose
// memory has gone would take the process with it.
func TestRehearsalOutlivesTheHost(t *testing.T) {
	h := open(t, 1, Env{})
	load(t, h, "real", ttl(1000), Options{})
	load(t, h, "late", ttl(1000), Options{})
	r := rehearse(t, h, &Candidate{Name: "fresh", Module: ttl(3000)})
	loaded, fresh := r.Attach(queue("real", nil)), r.Attach(queue("fresh", nil))
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		hooks hook.Hooks
		want  int64
	}{{loaded, 1000}, {fresh, 3000}} {
		if got := enqueue1(tc.hooks, now, hook.Message{}); got.Deadline != now.AddMillis(tc.want) {
			t.Errorf("got %+v, want %d ms; notes: %q", got, tc.want, r.Notes())
		}
	}
	late := r.Attach(queue("late", map[string]any{"message-ttl": int64(7)}))
	if got := enqueue1(late, now, hook.Message{}); got.Deadline != now.AddMillis(7) {
		t.Errorf("a policy that has not been asked before: got %+v, want what on-error says", got)
	}
	r.Close()
	r.Close()
	if _, err := h.Rehearse(&Candidate{Name: "fresh", Module: ttl(3000)}); !errors.Is(err, ErrNotOpen) {
		t.Errorf("a closed host rehearses a module: %v", err)
	}
}

// What a module says while it is tried for a rehearsal does not reach the log.
func TestRehearsalLogsNothing(t *testing.T) {
	var log lines
	h := openTrying(t, 1, Env{Log: log.logger()})
	b := wt.New()
	say := b.Host("log")
	text := b.Text(0, "hello")
	b.Batch(8)
	b.Each(abi.OnEnqueue, wt.I32(abi.LogWarn), text, wt.Call(say))
	r := rehearse(t, h, &Candidate{Name: "chatty", Module: b.Bytes()})
	enqueue1(r.Attach(queue("chatty", nil)), now, hook.Message{})
	if n := r.Notes(); len(n) != 1 || !strings.Contains(n[0], "hello") {
		t.Errorf("got %q", n)
	}
	if log.String() != "" {
		t.Errorf("it logs:\n%s", &log)
	}
}
