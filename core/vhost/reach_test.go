package vhost

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

// shown returns a reach as text: "q" is certain, "q?" is not, "a>q" comes through an exchange a, and "[x]q" can be held by x.
func shown(r Reach) string {
	switch {
	case r.NoExchange:
		return "no exchange"
	case r.ByName && len(r.Queues) == 0:
		return "by name"
	}
	var all []string
	for _, q := range r.Queues {
		s := strings.Join(append(q.Via, q.Queue), ">")
		if q.Holder != "" {
			s = "[" + q.Holder + "]" + s
		}
		if !q.Certain {
			s += "?"
		}
		all = append(all, s)
	}
	if r.Others > 0 {
		all = append(all, fmt.Sprintf("+%d", r.Others))
	}
	return strings.Join(all, " ")
}

func TestReach(t *testing.T) {
	v, _ := newVHost(t)
	for _, q := range []string{"a", "b", "c", "d"} {
		declare(t, v, q)
	}
	for _, x := range [][2]string{{"f", "fanout"}, {"d", "direct"}, {"t", "topic"}, {"h", "headers"}, {"e", "direct"}, {"loop1", "fanout"}, {"loop2", "fanout"}, {"none", "fanout"}} {
		exchangeOf(t, v, x[0], x[1])
	}
	exchangeOf(t, v, "alt", "direct", "alternate-exchange", "f")
	exchangeOf(t, v, "altnone", "direct", "alternate-exchange", "missing")
	exchangeOf(t, v, "altdefault", "fanout", "alternate-exchange", "")
	bind(t, v, "f", "a", "")
	bind(t, v, "f", "b", "x")
	bind(t, v, "d", "a", "k")
	bind(t, v, "d", "b", "l")
	bind(t, v, "t", "a", "#")
	bind(t, v, "t", "b", "x.*")
	bind(t, v, "h", "a", "")
	bind(t, v, "h", "b", "", "kind", "pdf")
	bind(t, v, "alt", "c", "k")
	bindExchange(t, v, "e", "f", "k")
	bind(t, v, "e", "a", "k")
	bindExchange(t, v, "loop1", "loop2", "")
	bindExchange(t, v, "loop2", "loop1", "")
	bind(t, v, "loop2", "d", "")
	for _, tt := range []struct {
		exchange, key string // "*" is the messages' own key
		want          string
	}{
		{"missing", "k", "no exchange"},
		{"", "a", "a"},
		{"", "missing", ""},
		{"", "*", "by name"},
		{"f", "*", "a b"},
		{"f", "k", "a b"},
		{"d", "k", "a"},
		{"d", "z", ""},
		{"d", "*", "a? b?"},
		{"t", "x.y", "a b"},
		{"t", "y", "a"},
		{"t", "*", "a b?"},
		{"h", "*", "a b?"},
		{"h", "k", "a b?"},
		{"e", "k", "a f>b"},
		{"e", "*", "a? f>b?"},
		{"alt", "k", "c"},
		{"alt", "z", "f>a f>b"},
		{"alt", "*", "f>a? f>b? c?"},
		{"altnone", "z", ""},
		{"altdefault", "b", ">b"},
		{"altdefault", "*", "by name"},
		{"loop1", "*", "loop2>d"},
		{"none", "*", ""},
	} {
		target := &hook.Target{Exchange: tt.exchange, Key: tt.key, HasKey: true}
		if tt.key == "*" {
			target.Key, target.HasKey = "", false
		}
		got, want := strings.Fields(shown(v.Reach(target, 10))), strings.Fields(tt.want)
		if tt.want == "by name" || tt.want == "no exchange" {
			got, want = []string{shown(v.Reach(target, 10))}, []string{tt.want}
		}
		keyless := slices.Contains([]string{"missing", "f", "h", "loop1", "none"}, tt.exchange)
		if keyed := v.Reach(target, 10).Keyed; keyed == keyless {
			t.Errorf("%q: looks at keys: %t", tt.exchange, keyed)
		}
		if !sameSet(got, want) {
			t.Errorf("%q, key %q: got %q, want %q", tt.exchange, tt.key, got, want)
		}
	}
	if got := shown(v.Reach(&hook.Target{Exchange: "f"}, 1)); got != "a +1" {
		t.Errorf("one of two: got %q", got)
	}
}

func sameSet(a, b []string) bool {
	count := map[string]int{}
	for _, s := range a {
		count[s]++
	}
	for _, s := range b {
		count[s]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

// A plugin's router is asked if it needs the key alone; of one that reads the message, or chooses anew for each, all bindings count.
func TestReachThroughPlugins(t *testing.T) {
	v, routers := newPrefix(t)
	exchangeOf(t, v, "p", "x-prefix")
	exchangeOf(t, v, "read", "x-prefix", "x-header", "h")
	declare(t, v, "a")
	declare(t, v, "b")
	for _, x := range []string{"p", "read"} {
		bind(t, v, x, "a", "a")
		bind(t, v, x, "b", "b")
	}
	for _, tt := range []struct {
		exchange string
		target   hook.Target
		want     string
	}{
		{"p", hook.Target{Key: "abc", HasKey: true}, "a"},
		{"p", hook.Target{Key: "x", HasKey: true}, ""},
		{"p", hook.Target{}, "a? b?"},
		{"read", hook.Target{Key: "abc", HasKey: true}, "a? b?"},
	} {
		tt.target.Exchange = tt.exchange
		if got := shown(v.Reach(&tt.target, 10)); got != tt.want {
			t.Errorf("%+v: got %q, want %q (%d routers)", tt.target, got, tt.want, len(routers))
		}
	}
}

func TestReachThroughASchedule(t *testing.T) {
	v, _ := newHoldingVHost(t, &holder{}, nil)
	declare(t, v, "q")
	exchangeOf(t, v, "x", "fanout")
	exchangeOf(t, v, "later", "x-held", "x-inner", "direct", "x-wait", int32(100))
	bindExchange(t, v, "x", "later", "")
	bind(t, v, "later", "q", "k")
	if got := shown(v.Reach(&hook.Target{Exchange: "x", Key: "k", HasKey: true}, 10)); got != "[later]later>q" {
		t.Errorf("got %q", got)
	}
	if held(t, v, "later") != 0 {
		t.Error("the exchange holds something")
	}
}

// Of many queues only the first are named: certain ones, by name.
func TestReachOfManyQueues(t *testing.T) {
	v, _ := newVHost(t)
	exchangeOf(t, v, "x", "headers")
	for i := range 100 {
		name := fmt.Sprintf("q%02d", i)
		declare(t, v, name)
		if i%10 == 9 {
			bind(t, v, "x", name, "") // all messages get there
			continue
		}
		bind(t, v, "x", name, "", "kind", "pdf")
	}
	for most, want := range map[int]string{0: "", 1: "q09", 3: "q09 q19 q29", 12: "q09 q19 q29 q39 q49 q59 q69 q79 q89 q99 q00? q01?", 100: "", 101: ""} {
		r := v.Reach(&hook.Target{Exchange: "x", Key: "k", HasKey: true}, most)
		if r.Keyed {
			t.Error("a headers exchange looks at keys")
		}
		var all []string
		for _, q := range r.Queues {
			if q.Certain {
				all = append(all, q.Queue)
			} else {
				all = append(all, q.Queue+"?")
			}
		}
		if got := strings.Join(all, " "); want != "" && got != want {
			t.Errorf("at most %d: got %q, want %q", most, got, want)
		}
		if len(r.Queues) != min(most, 100) || r.Others != 100-min(most, 100) {
			t.Errorf("at most %d: got %d and %d others", most, len(r.Queues), r.Others)
		}
	}
}
