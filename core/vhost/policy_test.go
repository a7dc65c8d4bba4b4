package vhost

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/policies"
	"github.com/curfewmq/curfew/sdk/hook"
)

// policy makes a policy from names and values of settings in turn.
func policy(tb testing.TB, kind policies.Kind, name, pattern string, priority int, settings ...any) *policies.Policy {
	tb.Helper()
	d := map[string]any{}
	for i := 0; i < len(settings); i += 2 {
		key, _ := settings[i].(string)
		d[key] = settings[i+1]
	}
	body, err := json.Marshal(map[string]any{"pattern": pattern, "priority": priority, "definition": d})
	must(tb, err)
	p, err := pluginRules.Parse(kind, name, body)
	must(tb, err)
	return p
}

func setPolicy(tb testing.TB, v *VHost, kind policies.Kind, p *policies.Policy) {
	tb.Helper()
	_, err := v.SetPolicy(kind, p)
	must(tb, err)
}

// effective returns a queue's setting as its plugins see it; -1 means none.
func effective(s *queue.Mailbox, name string) int64 {
	v, _ := s.Config().Settings(name)
	n, ok := hook.Int(v)
	if !ok {
		return -1
	}
	return n
}

func TestPolicyReachesQueues(t *testing.T) {
	v, _ := newVHost(t)
	early := declare(t, v, "q.early", "x-message-ttl", int32(5000))
	other := declare(t, v, "other")
	check := func(step string, s *queue.Mailbox, want int64) {
		t.Helper()
		if got := effective(s, "message-ttl"); got != want {
			t.Errorf("%s: %s has message-ttl %d, want %d", step, s.Config().Name, got, want)
		}
	}
	low := policy(t, policies.User, "low", "^q", 1, "message-ttl", int64(4000))
	created, err := v.SetPolicy(policies.User, low)
	must(t, err)
	if !created {
		t.Error("a new policy was not created")
	}
	check("set", early, 4000)
	check("set", other, -1)
	check("declared under it", declare(t, v, "q.late"), 4000)

	setPolicy(t, v, policies.User, policy(t, policies.User, "high", "^q", 2, "max-length", int64(7)))
	check("another of higher priority", early, 5000)
	setPolicy(t, v, policies.Operator, policy(t, policies.Operator, "ceiling", "", 0, "message-ttl", int64(100)))
	check("an operator's", early, 100)
	check("an operator's", other, 100)
	if existed, err := v.ClearPolicy(policies.User, "high"); err != nil || !existed {
		t.Errorf("cleared: %t, %v", existed, err)
	}
	if existed, _ := v.ClearPolicy(policies.Operator, "ceiling"); !existed {
		t.Error("there was no ceiling")
	}
	check("cleared", early, 4000)
	check("cleared", other, -1)
	if existed, err := v.ClearPolicy(policies.User, "high"); err != nil || existed {
		t.Errorf("cleared twice: %t, %v", existed, err)
	}
}

// Queues that shared a profile before a change share one afterwards.
func TestQueuesShareWhatPoliciesMakeOfThem(t *testing.T) {
	v, _ := newVHost(t)
	a, b := declare(t, v, "a", "x-expires", int32(5000)), declare(t, v, "b", "x-expires", int32(5000))
	setPolicy(t, v, policies.User, policy(t, policies.User, "p", "", 0, "message-ttl", int64(4000)))
	if a.Config().Profile != b.Config().Profile {
		t.Error("two queues with the same arguments and policies have a profile each")
	}
}

func TestSamePolicyChangesNothing(t *testing.T) {
	v, _ := newVHost(t)
	q := declare(t, v, "q")
	setPolicy(t, v, policies.User, policy(t, policies.User, "p", "", 0, "message-ttl", int64(4000)))
	before := q.Config()
	created, err := v.SetPolicy(policies.User, policy(t, policies.User, "p", "", 0, "message-ttl", int64(4000)))
	if must(t, err); created || q.Config() != before {
		t.Errorf("created %t, or the queue was configured again", created)
	}
}

func TestPolicyChoosesStrategy(t *testing.T) {
	v, _ := newVHost(t)
	q := declare(t, v, "q", "x-expiry-strategy", "usual")
	setPolicy(t, v, policies.User, policy(t, policies.User, "p", "", 0, "expiry-strategy", "other"))
	if got := q.Config().Strategy; got != "other" {
		t.Errorf("the strategy in force is %q", got)
	}
	setPolicy(t, v, policies.User, policy(t, policies.User, "p", "", 0, "expiry-strategy", "gone"))
	if got := q.Config().Strategy; got != "usual" {
		t.Errorf("a strategy that nobody offers left %q in force, not the default", got)
	}
}

func TestPolicyGivesAlternateExchange(t *testing.T) {
	v, _ := newVHost(t)
	exchangeOf(t, v, "x", "direct")
	exchangeOf(t, v, "alt", "fanout")
	declare(t, v, "q")
	bind(t, v, "alt", "q", "")
	routes := func() int {
		t.Helper()
		queues, _, err := v.Route("x", &parts.Message{Key: "k"}, nil)
		must(t, err)
		return len(queues)
	}
	generation := v.Generation()
	setPolicy(t, v, policies.User, policy(t, policies.User, "ae", "^x$", 0, "alternate-exchange", "alt"))
	if n := routes(); n != 1 || v.Generation() == generation {
		t.Errorf("goes to %d queues, and remembered routes stay: %t", n, v.Generation() == generation)
	}
	_, err := v.ClearPolicy(policies.User, "ae")
	if must(t, err); routes() != 0 {
		t.Error("still has an alternate")
	}
}

func TestPolicyLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newVHost(t)
		q := declare(t, v, "q")
		setPolicy(t, v, policies.User, policy(t, policies.User, "p", "", 0, "expires", int64(1000)))
		time.Sleep(999 * time.Millisecond)
		synctest.Wait()
		if err := q.Do(func(*queue.Queue, hook.Instant) {}); err != nil {
			t.Fatal("expired early")
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if err := q.Do(func(*queue.Queue, hook.Instant) {}); err == nil {
			t.Error("did not expire")
		}
	})
}

func TestPoliciesSurvive(t *testing.T) {
	for _, bulky := range []bool{false, true} {
		t.Run(fmt.Sprintf("rewritten %t", bulky), func(t *testing.T) {
			k := &memoryLog{}
			v, _ := newVHostWith(t, k)
			declare(t, v, "q")
			setPolicy(t, v, policies.User, policy(t, policies.User, "p", "^q", 3, "message-ttl", int64(4000), "expiry-strategy", "other"))
			setPolicy(t, v, policies.User, policy(t, policies.User, "gone", "^q", 9, "message-ttl", int64(1)))
			setPolicy(t, v, policies.Operator, policy(t, policies.Operator, "p", "", 0, "max-length", int64(9)))
			_, err := v.ClearPolicy(policies.User, "gone")
			must(t, err)
			if k.bulky.Store(bulky); bulky {
				v.CompactDefinitions()
			}
			v = k.restart(t)
			if n := len(v.Policies().List(policies.User)) + len(v.Policies().List(policies.Operator)); n != 2 {
				t.Errorf("%d policies are left, want 2", n)
			}
			q, err := v.Queue("q", 0)
			must(t, err)
			if ttl, length := effective(q, "message-ttl"), effective(q, "max-length"); ttl != 4000 || length != 9 || q.Config().Strategy != "other" {
				t.Errorf("message-ttl %d, max-length %d, strategy %q", ttl, length, q.Config().Strategy)
			}
		})
	}
}

// A queue that is declared while policies change has the final ones.
func TestDeclareWhilePoliciesChange(t *testing.T) {
	k := &memoryLog{}
	v, _ := newVHostWith(t, k)
	n := 0
	k.wait = func() error {
		if n++; n == 1 { // of the declaration
			setPolicy(t, v, policies.User, policy(t, policies.User, "p", "", 0, "message-ttl", int64(4000)))
		}
		return nil
	}
	declare(t, v, "q")
	q, err := v.Queue("q", 0)
	must(t, err)
	if got := effective(q, "message-ttl"); got != 4000 {
		t.Errorf("message-ttl %d", got)
	}
}

// The broker's events show to which objects a policy was applied.
func TestPoliciesAreTold(t *testing.T) {
	v, _ := newVHost(t)
	v.policyTable.telemetry = telemetry.New(telemetry.Options{Events: 1})
	declare(t, v, "q.1")
	declare(t, v, "q.2")
	declare(t, v, "other")
	p := policy(t, policies.User, "p", "^q", 0, "message-ttl", int64(1000))
	setPolicy(t, v, policies.User, p)
	setPolicy(t, v, policies.User, p) // changes nothing
	setPolicy(t, v, policies.Operator, policy(t, policies.Operator, "o", "", 0, "message-ttl", int64(500)))
	for _, name := range []string{"p", "none"} {
		_, err := v.ClearPolicy(policies.User, name)
		must(t, err)
	}
	var got []telemetry.Notice
	events := make([]telemetry.Event, 10)
	for _, e := range events[:v.policyTable.telemetry.Events().Read(0, events)] {
		got = append(got, *e.Notice)
	}
	want := []telemetry.Notice{
		{Kind: telemetry.PolicyApplied, VHost: "/", Name: "p", Queues: 2},
		{Kind: telemetry.PolicyApplied, VHost: "/", Name: "o", Operator: true, Queues: 3},
		{Kind: telemetry.PolicyApplied, VHost: "/", Name: "p", Cleared: true, Queues: 2},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}
