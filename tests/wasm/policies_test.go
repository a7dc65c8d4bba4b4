package wasm

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/tests/process"
)

// A module is loaded while the broker runs, a policy gives it to a queue that is there, and messages expire as it says.
func TestLiveQueue(t *testing.T) {
	t.Parallel()
	const life = 300 * time.Millisecond
	b := start(t, "")
	b.declare("jobs", nil)
	b.publish("jobs", 0, 10) // before

	chosen := fields{"pattern": "^jobs$", "definition": fields{"expiry-strategy": "wasm/x"}, "apply-to": "queues"}
	if got := b.ask(400, "PUT", "policies/%2F/p", chosen); !strings.Contains(string(got), "unknown expiry strategy 'wasm/x'") {
		t.Errorf("not loaded: got %s", got)
	}
	sum := sha256.Sum256(ttl())
	upload := fields{"module": ttl(), "digest": "sha256:" + hex.EncodeToString(sum[:]), "config": fields{"ttl-ms": life.Milliseconds()}}
	b.ask(201, "PUT", "wasm/policies/x", upload)
	b.ask(201, "PUT", "policies/%2F/p", chosen)
	var q struct {
		Strategy string `json:"expiry_strategy"`
	}
	must(t, json.Unmarshal(b.ask(200, "GET", "queues/%2F/jobs", nil), &q))
	if q.Strategy != "wasm/x" {
		t.Errorf("the queue's strategy is %q", q.Strategy)
	}

	b.publish("jobs", 10, 30)
	b.checkLetters(b.expired(20), 10, 30, life)
	if n := b.waiting("jobs"); n != 10 {
		t.Errorf("%d messages from before wait, want 10", n)
	}
	b.ask(204, "POST", "wasm/policies/x/reload", fields{"recompute": true})
	b.checkLetters(b.expired(10), 0, 10, life)
	b.ask(204, "POST", "wasm/policies/x/reload", fields{"recompute": true}) // the queue is empty
	b.publish("jobs", 30, 40)
	b.checkLetters(b.expired(10), 30, 40, life)
	var policy struct{ Errors map[string]int }
	must(t, json.Unmarshal(b.ask(200, "GET", "wasm/policies/x", nil), &policy))
	for kind, n := range policy.Errors {
		if n > 0 {
			t.Errorf("the policy has failed %d times: %s", n, kind)
		}
	}

	b.ask(409, "DELETE", "wasm/policies/x", nil)
	b.ask(204, "DELETE", "policies/%2F/p", nil)
	b.ask(204, "DELETE", "wasm/policies/x", nil)
	b.ask(404, "GET", "wasm/policies/x", nil)
}

// A policy that was taken from its queues by force came back to them for as long as a file that has it was only checked.
func TestADryRunGivesNoPolicyBack(t *testing.T) {
	t.Parallel()
	b := start(t, "")
	b.ask(201, "PUT", "wasm/policies/x", fields{"module": ttl(), "config": fields{"ttl-ms": 300}})
	b.declare("jobs", amqp091.Table{"x-expiry-strategy": "wasm/x"})
	file := json.RawMessage(b.ask(200, "GET", "definitions", nil))
	b.ask(204, "DELETE", "wasm/policies/x?force=true", nil)
	if got := b.ask(400, "POST", "definitions?dry-run=true", file); !strings.Contains(string(got), "expiry policy 'x': queues have chosen it, which is not loaded: 1 of them") {
		t.Errorf("got %s", got)
	}
	b.ask(404, "GET", "wasm/policies/x", nil)
	b.ask(204, "DELETE", "queues/%2F/jobs", nil)
	b.ask(200, "POST", "definitions?dry-run=true", file)
	b.ask(404, "GET", "wasm/policies/x", nil)
	b.ask(204, "POST", "definitions", file)
	b.ask(200, "GET", "wasm/policies/x", nil)
}

// What is wrong with an upload is the answer, and the policy in force stays.
func TestRefusals(t *testing.T) {
	t.Parallel()
	b := start(t, "")
	b.ask(201, "PUT", "wasm/policies/x", fields{"module": ttl(), "config": fields{"ttl-ms": 60_000}})
	for _, tc := range []struct {
		body fields
		want string
	}{
		{fields{"module": []byte("\x00asm")}, "not a WebAssembly module"},
		{fields{"module": ttl(), "digest": strings.Repeat("0", 64)}, "it was changed or truncated on the way"},
		{fields{"module": ttl(), "config": fields{"ttl-ms": "soon"}}, `ttl-ms: \"soon\" is not a whole number`},
		{fields{"module": ttl(), "fuel": 5}, "fuel: accepted are default, large, and 10000 to 1000000000"},
		{fields{"module": ttl(), "on_error": "expire"}, "on_error: accepted are builtin, keep, reject"},
		{fields{"module": ttl(), "grants": []string{"root"}}, "is not a grant"},
		{fields{"module": ttl(), "shadow": "deadlin"}, "shadow: unknown expiry strategy 'deadlin', expected one of deadline, rabbitmq,"},
	} {
		if got := b.ask(400, "PUT", "wasm/policies/x", tc.body); !strings.Contains(string(got), tc.want) {
			t.Errorf("got %s, want %q", got, tc.want)
		}
	}
	if i := b.info("x"); !i.Loaded || i.Origin != "loaded" || i.Breaker != "closed" {
		t.Errorf("got %+v", i)
	}
}

// Messages keep the deadlines that a policy gave them over a restart that the module does not survive; one that does is in force.
func TestRestart(t *testing.T) {
	t.Parallel()
	const life = 2 * time.Second
	dir := filepath.Join(t.TempDir(), "data")
	first := start(t, "", "--data", dir)
	upload := fields{"module": ttl(), "config": fields{"ttl-ms": life.Milliseconds()}}
	for i, name := range []string{"stays", "gone"} {
		first.ask(201, "PUT", "wasm/policies/"+name, upload)
		first.declare(name, amqp091.Table{"x-expiry-strategy": "wasm/" + name})
		first.publish(name, 10*i, 10*i+10)
	}
	first.Stop()
	must(t, os.WriteFile(filepath.Join(dir, "policies", "gone.policy"), []byte("{}\n"), 0o600))
	kept, err := exec.CommandContext(t.Context(), process.Binary(t), "log", "dump", dir).Output()
	must(t, err)
	digest := sha256.Sum256(ttl())
	if whose := fmt.Sprintf("returns 0, policy %x\n", digest[:8]); strings.Count(string(kept), whose) != 20 {
		t.Errorf("20 messages are not kept with %q:\n%s", whose, kept)
	}

	p := process.Start(t, "", "--data", dir)
	p.Excuse("a policy that was loaded before could not be loaded or kept")
	second := attach(t, p)
	second.checkLetters(second.expired(20), 0, 20, life)
	second.publish("stays", 20, 30)
	second.publish("gone", 30, 40) // for ever, until somebody loads the policy again
	second.checkLetters(second.expired(10), 20, 30, life)
	if got := second.info("gone"); got.Loaded || !strings.Contains(got.LastError, "gone.policy: the module is not the one that was kept") {
		t.Errorf("got %+v", got)
	}
	second.ask(204, "PUT", "wasm/policies/gone", fields{"module": ttl(), "config": fields{"ttl-ms": 1}, "recompute": true})
	second.checkLetters(second.expired(10), 30, 40, time.Millisecond)
}

// A policy from the configuration may be the strategy of all queues.
func TestConfigured(t *testing.T) {
	t.Parallel()
	const life = 200 * time.Millisecond
	file := filepath.Join(t.TempDir(), "m.wasm")
	yaml := fmt.Sprintf("plugins:\n  ttl: {strategy: wasm/x}\n  wasm:\n    modules:\n      x: {path: %q, config: {ttl-ms: %d}, fuel: large, on-error: keep}\n", file, life.Milliseconds())
	absent := process.Launch(t, yaml)
	absent.Excuse("the broker cannot start")
	if got := absent.Exit(); got != 1 {
		t.Errorf("without the file: exit status %d", got)
	}
	if r := absent.Await("the broker cannot start"); !strings.HasPrefix(fmt.Sprint(r["error"]), "plugins.wasm.modules.x: path: open ") {
		t.Errorf("got %v", r)
	}
	must(t, os.WriteFile(file, ttl(), 0o600))
	b := start(t, yaml)
	b.declare("jobs", amqp091.Table{"x-message-ttl": 3_600_000}) // does not count
	b.publish("jobs", 0, 10)
	b.checkLetters(b.expired(10), 0, 10, life)
	b.ask(409, "PUT", "wasm/policies/x", fields{"module": ttl()})
	b.ask(204, "POST", "wasm/policies/x/reload", nil)
	b.ask(409, "DELETE", "wasm/policies/x?force=true", nil)
}

// A shadow counts what it would have done otherwise.
func TestShadow(t *testing.T) {
	t.Parallel()
	b := start(t, "")
	b.declare("jobs", amqp091.Table{"x-message-ttl": 100})
	b.ask(201, "PUT", "wasm/policies/shade", fields{"module": ttl(), "config": fields{"ttl-ms": 1}, "shadow": "deadline"})
	b.publish("jobs", 0, 10)
	b.checkLetters(b.expired(10), 0, 10, 100*time.Millisecond)
	if i := b.info("shade"); i.Shadow.Compared < 10 || i.Shadow.Differing < 10 {
		t.Errorf("got %+v", i)
	}
}

// A policy sends messages where it likes, through the exchange that it names; the native path adds x-death.
func TestRoute(t *testing.T) {
	t.Parallel()
	m := wt.New()
	m.Data(wt.Scratch, "amq.directparking")
	m.Batch(16)
	m.Each(abi.OnEnqueue, wt.Act(abi.DeadLetter),
		wt.LocalGet(wt.Verdict), wt.I32(wt.Scratch), wt.I32Store(abi.VerdictStrings),
		wt.LocalGet(wt.Verdict), wt.I32(len("amq.direct")), wt.I32Store16(abi.VerdictExchangeLen),
		wt.LocalGet(wt.Verdict), wt.I32(len("parking")), wt.I32Store16(abi.VerdictKeyLen))
	b := start(t, "")
	b.ask(201, "PUT", "wasm/policies/park", fields{"module": m.Bytes(), "grants": []string{"route"}})
	b.declare("jobs", amqp091.Table{"x-expiry-strategy": "wasm/park"})
	must(t, b.ch.QueueBind("dead", "parking", "amq.direct", false, nil))
	b.publish("jobs", 0, 20)
	for _, l := range b.expired(20) {
		if l.queue != "jobs" {
			t.Errorf("got %+v", l)
		}
	}
}
