package vhost

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/queue"
)

// sorted sorts names, where the order of a route does not matter.
func sorted(names string) string {
	all := strings.Fields(names)
	slices.Sort(all)
	return strings.Join(all, " ")
}

func TestRoute(t *testing.T) {
	tests := []struct {
		name          string
		exchange, key string
		extra         []string
		want          string
	}{
		{"default", "", "a", nil, "a"},
		{"default, no such queue", "", "none", nil, ""},
		{"default, several keys", "", "b", []string{"a", "none", "b", "a"}, "a b"},
		{"direct", "amq.direct", "ab", nil, "a b"},
		{"direct, other key", "amq.direct", "x", nil, ""},
		{"direct, several keys", "amq.direct", "ab", []string{"bc", "x"}, "a b c"},
		{"fanout", "amq.fanout", "anything", nil, "a b c"},
		{"topic", "amq.topic", "one.two", nil, "a b"},
		{"exchange to exchange", "outer", "k", nil, "a b c"},
		{"in a circle", "circle 1", "k", nil, "a b"},
		{"to itself", "self", "k", nil, "a"},
		{"alternate", "has alternate", "x", nil, "b"},
		{"alternate not needed", "has alternate", "k", nil, "a"},
		{"alternate's alternate", "has chain", "x", nil, "b"},
		{"alternate is the default exchange", "falls to default", "c", nil, "c"},
		{"alternate does not exist", "falls to nothing", "x", nil, ""},
		{"alternate is itself", "falls to itself", "x", nil, ""},
		{"alternates in a circle", "falls round 1", "x", nil, ""},
		{"alternate of an inner exchange", "outer of alternate", "x", nil, "b"},
		{"what an inner exchange adds is there already", "outer of full", "k", nil, "a"},
	}
	v, _ := newVHost(t)
	for _, q := range []string{"a", "b", "c"} {
		declare(t, v, q)
		bind(t, v, "amq.fanout", q, "")
		bind(t, v, "amq.fanout", q, "again")
	}
	bind(t, v, "amq.direct", "a", "ab")
	bind(t, v, "amq.direct", "b", "ab")
	bind(t, v, "amq.direct", "b", "bc")
	bind(t, v, "amq.direct", "c", "bc")
	bind(t, v, "amq.topic", "a", "one.*")
	bind(t, v, "amq.topic", "a", "#")
	bind(t, v, "amq.topic", "b", "*.two")
	for _, x := range []string{"outer", "circle 1", "circle 2", "self", "full"} {
		exchangeOf(t, v, x, "fanout")
	}
	bindExchange(t, v, "outer", "amq.fanout", "")
	bind(t, v, "outer", "a", "")
	bindExchange(t, v, "circle 1", "circle 2", "")
	bindExchange(t, v, "circle 2", "circle 1", "")
	bind(t, v, "circle 1", "a", "")
	bind(t, v, "circle 2", "b", "")
	bindExchange(t, v, "self", "self", "")
	bind(t, v, "self", "a", "")
	for name, alternate := range map[string]string{
		"has alternate": "to b", "has chain": "has alternate", "falls to default": "", "falls to nothing": "none",
		"falls to itself": "falls to itself", "falls round 1": "falls round 2", "falls round 2": "falls round 1",
	} {
		exchangeOf(t, v, name, "direct", "alternate-exchange", alternate)
	}
	exchangeOf(t, v, "to b", "fanout")
	bind(t, v, "to b", "b", "")
	bind(t, v, "has alternate", "a", "k")
	exchangeOf(t, v, "outer of alternate", "fanout")
	bindExchange(t, v, "outer of alternate", "has chain", "")
	must(t, v.DeclareExchange(Exchange{Name: "inner of full", Type: "fanout", Args: args("alternate-exchange", "to b")}, nil))
	exchangeOf(t, v, "outer of full", "fanout")
	bind(t, v, "outer of full", "a", "")
	bind(t, v, "inner of full", "a", "")
	bindExchange(t, v, "outer of full", "inner of full", "")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := sorted(names(t, v, tt.exchange, tt.key, tt.extra...)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestRouteManyKeys(t *testing.T) {
	v, _ := newVHost(t)
	var keys []string
	for i := range 100 {
		name := strconv.Itoa(i)
		declare(t, v, name)
		keys = append(keys, name, name, "none "+name)
	}
	if got := strings.Fields(names(t, v, "", "0", keys...)); len(got) != 100 {
		t.Errorf("routed to %d queues, want each of 100 once", len(got))
	}
}

func TestRouteRefused(t *testing.T) {
	v, _ := newVHost(t)
	_, _, err := v.Route("none", &parts.Message{Key: "k"}, nil)
	want(t, err, NotFound, "no exchange 'none' in vhost '/'")
	_, _, err = v.Route("amq.rabbitmq.trace", &parts.Message{Key: "k"}, nil)
	want(t, err, AccessRefused, "cannot publish to internal exchange 'amq.rabbitmq.trace' in vhost '/'")
}

func TestRouteThroughInternalExchange(t *testing.T) {
	v, _ := newVHost(t)
	declare(t, v, "a")
	must(t, v.DeclareExchange(Exchange{Name: "inner", Type: "fanout", Internal: true}, nil))
	bindExchange(t, v, "amq.fanout", "inner", "")
	bind(t, v, "inner", "a", "")
	if got := names(t, v, "amq.fanout", ""); got != "a" {
		t.Errorf("got %q", got)
	}
}

// A route is reusable if matching it did not read the headers.
func TestHeadersAreLookedAtOnlyWhereTheyMatter(t *testing.T) {
	v, _ := newVHost(t)
	declare(t, v, "a")
	declare(t, v, "b")
	bind(t, v, "amq.direct", "a", "k")
	bind(t, v, "amq.headers", "b", "", "kind", "x")
	exchangeOf(t, v, "both", "fanout")
	bindExchange(t, v, "both", "amq.direct", "")
	bindExchange(t, v, "both", "amq.headers", "")
	for exchange, tt := range map[string]struct {
		want string
		read bool
	}{"": {"", false}, "amq.direct": {"a", false}, "amq.headers": {"b", true}, "both": {"a b", true}} {
		read := false
		load := func() []byte {
			read = true
			p := amqp.Properties{Headers: args("kind", "x")}
			p.Set(amqp.PropHeaders)
			return p.Append(nil)
		}
		queues, reusable, err := v.Route(exchange, &parts.Message{Key: "k", Load: load}, nil)
		must(t, err)
		if got := sorted(join(queues)); got != tt.want || read != tt.read || reusable == tt.read {
			t.Errorf("exchange %q: got %q, headers read: %v, reusable: %v; want %q, %v", exchange, got, read, reusable, tt.want, tt.read)
		}
		if _, _, err := v.Route(exchange, &parts.Message{Key: "k"}, nil); err != nil {
			t.Errorf("exchange %q without headers: %v", exchange, err)
		}
	}
}

func TestRouteAppends(t *testing.T) {
	v, _ := newVHost(t)
	a, b := declare(t, v, "a"), declare(t, v, "b")
	queues, _, err := v.Route("", &parts.Message{Key: "b"}, []*queue.Mailbox{a})
	must(t, err)
	if !slices.Equal(queues, []*queue.Mailbox{a, b}) {
		t.Errorf("got %s", join(queues))
	}
}

func TestGeneration(t *testing.T) {
	v, _ := newVHost(t)
	declare(t, v, "q")
	step := func(what string, changes bool, fn func()) {
		t.Helper()
		before := v.Generation()
		fn()
		if after := v.Generation(); (after != before) != changes {
			t.Errorf("%s: generation %d, then %d", what, before, after)
		}
	}
	b := Binding{Source: "x", Destination: "q", Key: "k"}
	step("declare exchange", true, func() { exchangeOf(t, v, "x", "direct") })
	step("declare it again", false, func() { exchangeOf(t, v, "x", "direct") })
	step("bind", true, func() { must(t, v.Bind(b, 0)) })
	step("bind again", false, func() { must(t, v.Bind(b, 0)) })
	step("bind an exchange", true, func() { bindExchange(t, v, "x", "amq.fanout", "") })
	step("unbind", true, func() { must(t, v.Unbind(b, 0)) })
	step("unbind again", false, func() { must(t, v.Unbind(b, 0)) })
	step("route", false, func() { names(t, v, "x", "k") })
	step("delete exchange", true, func() { must(t, v.DeleteExchange("x", false)) })
	step("delete it again", false, func() { must(t, v.DeleteExchange("x", false)) })
	step("declare a queue nobody asked for", false, func() { declare(t, v, "first") })
	step("route to no queue", false, func() { names(t, v, "", "second") })
	step("declare a queue somebody may have asked for", true, func() { declare(t, v, "third") })
	step("declare another", false, func() { declare(t, v, "fourth") })
	step("route to a queue and to none", false, func() { names(t, v, "", "first", "second") })
	step("declare it", true, func() { declare(t, v, "second") })
	step("delete queue", true, func() {
		_, err := v.DeleteQueue("second", 0, false, false)
		must(t, err)
	})
}
