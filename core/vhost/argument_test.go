package vhost

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/logtest"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/policies"
	"github.com/curfewmq/curfew/sdk/hook"
)

// declarer is a plugin that only declares.
type declarer []hook.Argument

func (d declarer) Arguments() []hook.Argument { return d }

func (declarer) Attach(hook.Queue) hook.Hooks { return hook.Hooks{Shared: true} }

// refusing declares an argument that has no valid value.
func refusing(name string, order int) hook.Argument {
	return hook.Argument{Name: name, Order: order, Check: func(any, hook.Args) error { return &hook.ArgError{Term: "wrong"} }}
}

func vhostOf(t *testing.T, k DefinitionLog, plugins ...hook.Plugin) (*VHost, *logtest.Log) {
	t.Helper()
	var all []chain.Named
	for i, p := range plugins {
		all = append(all, chain.Named{Name: string(rune('a' + i)), Plugin: p})
	}
	c, err := chain.New(all, chain.Options{})
	must(t, err)
	log := new(logtest.Log)
	return New(Config{Name: "/", Chain: c, Clock: clock.New(), Log: slog.New(slog.NewTextHandler(log, nil)), DefinitionLog: k}), log
}

// Plugins' arguments stand in their order among the core's; arguments without an order come last.
func TestOrderOfArguments(t *testing.T) {
	order := []string{"x-first", "x-early", "x-max-priority", "x-late", "x-queue-type", "x-name-prefix", "x-last"}
	v, _ := vhostOf(t, nil,
		declarer{refusing("x-last", 0), refusing("x-late", 105)},
		declarer{refusing("x-early", 5), refusing("x-first", -1)})
	var got []string
	for _, a := range v.arguments {
		if slices.Contains(order, a.Name) {
			got = append(got, a.Name)
		}
	}
	if !slices.Equal(got, order) {
		t.Errorf("got %v, want %v", got, order)
	}
	_, err := v.DeclareQueue(QueueDeclare{Name: "q", Args: args("x-last", true, "x-late", true, "x-max-priority", int32(256), "x-early", true)})
	want(t, err, Precondition, "invalid arg 'x-early' for queue 'q' in vhost '/': wrong")
	_, err = v.DeclareQueue(QueueDeclare{Name: "q", Args: args("x-last", true, "x-late", true, "x-max-priority", int32(256))})
	want(t, err, Precondition, "invalid arg 'x-max-priority' for queue 'q' in vhost '/': {max_value_exceeded,256}")
	_, err = v.DeclareQueue(QueueDeclare{Name: "q", Args: args("x-last", true, "x-late", true)})
	want(t, err, Precondition, "invalid arg 'x-late' for queue 'q' in vhost '/': wrong")
}

// Permission is asked for each exchange that arguments name, and for none that only looks like one.
func TestEachNamedExchangeMustBeAllowed(t *testing.T) {
	v, _ := vhostOf(t, nil, declarer{
		{Name: "x-copies-to", NamesExchange: true}, {Name: "x-other-to", NamesExchange: true, Order: 1}, {Name: "x-exchange"},
	})
	var asked []string
	d := QueueDeclare{Name: "q", Args: args("x-exchange", "none", "x-copies-to", "copies", "x-other-to", ""), Allow: func(x string) error {
		if asked = append(asked, x); x == "copies" {
			return errors.New("no")
		}
		return nil
	}}
	if _, err := v.DeclareQueue(d); err == nil || err.Error() != "no" {
		t.Errorf("got %v", err)
	}
	if want := []string{"", "copies"}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
	_, err := v.DeclareQueue(QueueDeclare{Name: "q", Args: args("x-copies-to", []byte("copies"))})
	want(t, err, Precondition, "invalid type 'binary' for arg 'x-copies-to' in queue 'q' in vhost '/'")
}

// Arguments of a restored queue are not checked again. A new queue with the same arguments shared its profile, and was not checked
// either.
func TestNewQueuesAreCheckedBesideRestoredOnes(t *testing.T) {
	k := &memoryLog{}
	v, _ := vhostOf(t, k, declarer{{Name: "x-night"}})
	declare(t, v, "q", "x-night", int32(99))
	v, _ = vhostOf(t, k, declarer{refusing("x-night", 0)}) // a later version of the plugin
	queues, err := v.Restore(k.read(t), func(id uint64) (*queue.Storage, error) { return &queue.Storage{Journal: k, ID: id}, nil })
	must(t, err)
	start(queues)
	declare(t, v, "q", "x-night", int32(99)) // as it is
	_, err = v.DeclareQueue(QueueDeclare{Name: "other", Durable: true, Args: args("x-night", int32(99))})
	want(t, err, Precondition, "invalid arg 'x-night' for queue 'other' in vhost '/': wrong")
}

// A policy with the key of a plugin that is not there any more stays, has no effect, and is warned about. With the plugin back it
// applies again.
func TestPolicyOutlivesItsPlugin(t *testing.T) {
	night := hook.Argument{Name: "x-night", Policy: &hook.PolicyKey{Operator: true}}
	k := &memoryLog{}
	restart := func(plugins ...hook.Plugin) (*VHost, *logtest.Log) {
		v, log := vhostOf(t, k, plugins...)
		d := k.readBy(t, policies.NewRules(v.chain.Arguments(), nil))
		queues, err := v.Restore(d, func(id uint64) (*queue.Storage, error) { return &queue.Storage{Journal: k, ID: id}, nil })
		must(t, err)
		start(queues)
		return v, log
	}
	v, _ := vhostOf(t, k, declarer{night})
	declare(t, v, "q")
	rules := policies.NewRules(v.chain.Arguments(), nil)
	for kind, name := range []string{"p", "o"} {
		p, err := rules.Parse(policies.Kind(kind), name, []byte(`{"pattern":"^q","definition":{"night":5}}`))
		must(t, err)
		setPolicy(t, v, policies.Kind(kind), p)
	}
	const warning = "a policy sets keys that no plugin in plugins.chain knows; they have no effect"
	for _, there := range []bool{false, false, true} {
		plugin := declarer{}
		if there {
			plugin = declarer{night}
		}
		v, log := restart(plugin)
		q, err := v.Queue("q", 0)
		must(t, err)
		wantNight, lines := int64(-1), 2
		if there {
			wantNight, lines = 5, 0
		}
		if got := effective(q, "night"); got != wantNight {
			t.Errorf("plugin there %t: night is %d, want %d", there, got, wantNight)
		}
		if got := log.Count(warning); got != lines {
			t.Errorf("plugin there %t: %d warnings, want %d", there, got, lines)
		}
		if !there && (log.Count(`policy=p operator=false keys=night`) != 1 || log.Count(`policy=o operator=true keys=night`) != 1) {
			t.Error("the warnings do not name policies and keys")
		}
		k.bulky.Store(true)
		v.CompactDefinitions()
		p, ok := v.Policies().Lookup(policies.User, "p")
		if text, _ := p.MarshalJSON(); !ok || !strings.Contains(string(text), `"night":5`) {
			t.Errorf("the policy is %s", text)
		}
	}
}

// A start with a plugin less wrote a line for each policy with the plugin's key, however many there were, and each line named all
// keys, however long they were.
func TestWarningsOfUnknownKeysAreFew(t *testing.T) {
	var all []hook.Argument
	keys := []string{strings.Repeat("k", 9000)}
	for i := range 30 {
		keys = append(keys, fmt.Sprintf("night-%02d", i))
	}
	for _, key := range keys {
		all = append(all, hook.Argument{Name: "x-" + key, Policy: &hook.PolicyKey{}})
	}
	rules := policies.NewRules(all, nil)
	k := &memoryLog{}
	v, _ := vhostOf(t, k)
	for i := range 40 {
		set := keys[1 : 1+i%30]
		if len(set) == 0 {
			set = keys // with the long one
		}
		p, err := rules.Parse(policies.User, fmt.Sprintf("p%02d", i), []byte(`{"pattern":"","definition":{"`+strings.Join(set, `":1,"`)+`":1}}`))
		must(t, err)
		setPolicy(t, v, policies.User, p)
	}
	v, log := vhostOf(t, k)
	_, err := v.Restore(k.readBy(t, policies.NewRules(nil, nil)), nil)
	must(t, err)
	if got := log.Count("a policy sets keys that no plugin"); got != 10 {
		t.Errorf("%d warnings name policies, want 10", got)
	}
	if log.Count(`"more policies set keys that no plugin in plugins.chain knows" vhost=/ policies=30`) != 1 {
		t.Error("no warning says how many more policies there are")
	}
	for _, want := range []string{`policy=p00 operator=false keys="and 31 more"`, `policy=p03 operator=false keys="night-00, night-01, night-02"`} {
		if log.Count(want) != 1 {
			t.Errorf("no warning has %q", want)
		}
	}
}
