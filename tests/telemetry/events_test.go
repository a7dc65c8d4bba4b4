package telemetry

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/tests/process"
)

// follower is "curfew ctl events" in a process of its own.
type follower struct {
	t     *testing.T
	cmd   *exec.Cmd
	ended chan error // what its end was

	mu    sync.Mutex // guards lines
	lines []map[string]any
}

// followEvents starts one. It prints JSON.
func followEvents(t *testing.T, b *broker, args ...string) *follower {
	t.Helper()
	f := &follower{t: t, ended: make(chan error, 1)}
	f.cmd = exec.Command(process.Binary(t), append([]string{"ctl", "--json", "events", "--history", "1000"}, args...)...)
	f.cmd.Env = append(os.Environ(), "CURFEW_CTL_URL=http://"+b.Management)
	out, err := f.cmd.StdoutPipe()
	must(t, err)
	must(t, f.cmd.Start())
	go f.read(out)
	t.Cleanup(func() { _ = f.cmd.Process.Kill() }) // it has ended, if all went well
	return f
}

func (f *follower) read(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		event := map[string]any{}
		if json.Unmarshal(lines.Bytes(), &event) != nil {
			event["garbage"] = lines.Text()
		}
		f.mu.Lock()
		f.lines = append(f.lines, event)
		f.mu.Unlock()
	}
	f.ended <- f.cmd.Wait()
}

// await waits for an event with these members, given as name=value.
func (f *follower) await(want ...string) map[string]any {
	f.t.Helper()
	var found map[string]any
	if !process.Poll(func() bool { found = f.find(want); return found != nil }) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.t.Fatalf("there is no event with %v among %v", want, f.lines)
	}
	return found
}

func (f *follower) find(want []string) map[string]any {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.lines {
		if !slices.ContainsFunc(want, func(member string) bool {
			name, value, _ := strings.Cut(member, "=")
			return fmt.Sprint(e[name]) != value
		}) {
			return e
		}
	}
	return nil
}

// Everything that happens to messages, queues, policies and the broker is seen by who follows the events of a real broker.
func TestEvents(t *testing.T) {
	t.Parallel()
	b := start(t, "limits: {memory-watermark: 16MiB}")
	for _, msg := range []string{"a policy failed; its on-error decides about its messages", "a policy fails too often and is not called for a while"} {
		b.Excuse(msg)
	}
	f := followEvents(t, b)

	b.declare("letters", nil)
	b.declare("short", letters("letters", nil))
	b.publish("short", nil, "1")
	e := f.await("kind=message_expired", "queue=short", "outcome=dead_lettered", "message_id=m-1", "routing_key=short", "dead_letter_routing_key=letters", "vhost=/")
	if late, ok := e["lateness_ms"].(float64); !ok || late < 0 || e["deadline"] == nil || e["id"] == nil || e["time"] == nil {
		t.Errorf("got %v", e)
	}

	b.declare("strict", letters("letters", nil))
	b.publish("strict", nil, "")
	must(t, b.consume("strict").Reject(false))
	f.await("kind=message_dead_lettered", "queue=strict", "reason=rejected")

	b.declare("full", amqp091.Table{"x-max-length": 0})
	b.publish("full", nil, "")
	f.await("kind=message_dropped", "queue=full", "reason=maxlen", "outcome=dropped")

	b.declare("round", letters("round", nil))
	b.publish("round", nil, "1")
	f.await("kind=message_cycle", "queue=round", "reason=expired", "outcome=cycle")

	b.declare("leased", amqp091.Table{"x-expires": 50})
	f.await("kind=queue_expired", "queue=leased", "reason=queue_expired", "messages_dropped=0")

	b.ask(201, "PUT", "policies/%2F/p", map[string]any{"pattern": "^letters$", "definition": map[string]any{"max-length": 1000}})
	f.await("kind=policy_applied", "policy=p", "action=set", "queues=1", "operator=false")
	b.ask(204, "DELETE", "policies/%2F/p", nil)
	f.await("kind=policy_applied", "policy=p", "action=cleared", "queues=1")

	b.failModule()
	f.await("kind=module_loaded", "module=bad")
	f.await("kind=breaker_opened", "module=bad")
	b.ask(204, "POST", "wasm/policies/bad/reload", map[string]any{})
	f.await("kind=module_reloaded", "module=bad")
	b.ask(204, "DELETE", "wasm/policies/bad?force=true", nil)
	f.await("kind=module_unloaded", "module=bad")

	b.raiseAlarm(f)
	must(t, f.cmd.Process.Signal(os.Interrupt))
	if err, _, _ := process.Receive(f.ended); err != nil {
		t.Errorf("Ctrl-C: %v", err)
	}

	filtered := followEvents(t, b, "-p", "/", "--queue", "round", "--kind", "message_cycle,queue_expired", "--count", "1")
	if err, _, _ := process.Receive(filtered.ended); err != nil || len(filtered.lines) != 1 || filtered.lines[0]["kind"] != "message_cycle" {
		t.Errorf("filtered: %v, %v", filtered.lines, err)
	}

	// A broker that ends does not wait for those who watch.
	last := followEvents(t, b, "--no-reconnect")
	last.await("kind=alarm_raised")
	b.Stop()
	err, _, _ := process.Receive(last.ended)
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 69 { //nolint:errorlint // Wait returns just that
		t.Errorf("the broker has ended: got %v, want exit status 69", err)
	}
}

// failModule has a module fail until it is not asked any more.
func (b *broker) failModule() {
	b.t.Helper()
	all := wt.Hostiles()
	i := slices.IndexFunc(all, func(h wt.Hostile) bool { return h.Name == "complaint" })
	b.ask(201, "PUT", "wasm/policies/bad", map[string]any{"module": all[i].Module})
	b.declare("judged", amqp091.Table{"x-expiry-strategy": "wasm/bad"})
	for range 6 {
		b.publish("judged", nil, "")
	}
}

// raiseAlarm publishes more than there is memory for, and takes it away again.
func (b *broker) raiseAlarm(f *follower) {
	b.t.Helper()
	b.declare("large", nil)
	conn, err := process.Dial(b.URL())
	must(b.t, err)
	ch, err := conn.Channel()
	must(b.t, err)
	published := make(chan error, 1)
	go func() {
		var err error
		for range 17 {
			if err = ch.Publish("", "large", false, false, amqp091.Publishing{Body: make([]byte, 1<<20)}); err != nil {
				break
			}
		}
		published <- err
	}()
	f.await("kind=alarm_raised", "alarm=memory")
	if status, body := b.Health(); status != 503 {
		b.t.Errorf("health: got %d %s", status, body)
	}
	for path, want := range map[string]string{"/healthz": `{"status":"ok","alarms":["memory"]}`, "/readyz": `{"status":"ok","alarms":["memory"]}`} {
		if status, body := fetch(b.t, b.Management, path); status != 200 || body != want {
			b.t.Errorf("%s: got %d %s", path, status, body)
		}
	}
	b.ask(204, "DELETE", "queues/%2F/large/contents", nil)
	f.await("kind=alarm_cleared", "alarm=memory")
	if err, _, inTime := process.Receive(published); err != nil || !inTime {
		b.t.Errorf("the publisher still waits, or failed: %v", err)
	}
	must(b.t, conn.Close())
}
