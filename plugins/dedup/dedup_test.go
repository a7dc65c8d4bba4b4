package dedup

import (
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const now = hook.Instant(1_700_000_000_000_000_000)

func args(namesAndValues ...any) (as hook.Args) {
	for i := 0; i < len(namesAndValues); i += 2 {
		name, _ := namesAndValues[i].(string)
		as = append(as, hook.Arg{Name: name, Value: sent(namesAndValues[i+1])})
	}
	return as
}

// sent returns a value with a type that AMQP has.
func sent(v any) any {
	if n, ok := v.(int); ok {
		return int32(n)
	}
	return v
}

func TestConformance(t *testing.T) {
	on := map[string]any{"message-deduplication": true, "deduplication-header": "x-retry"}
	contents := []hooktest.Content{{Headers: map[string]any{"x-deduplication-header": "a"}}, {}}
	hooktest.Run(t, Factory,
		hooktest.Case{Name: "queue", Queue: hooktest.Spec{Settings: on}},
		hooktest.Case{Name: "type", Exchange: hooktest.ExchangeSpec{Type: exchangeType, Args: args("x-cache-size", 10), Contents: contents}},
		hooktest.Case{Name: "filter", Exchange: hooktest.ExchangeSpec{Type: "direct", Args: args(dedupArgument, true), Contents: contents}})
}

func TestConfig(t *testing.T) {
	for _, tc := range []struct {
		section hooktest.Section
		want    string
	}{
		{hooktest.Section{"max-cache-size": 0}, "max-cache-size: 0, expected 1 to 1073741824 messages"},
		{hooktest.Section{"max-entries": -1}, "max-entries: -1, expected 1 to 1073741824 messages"},
		{hooktest.Section{"max-entries": math.MaxInt64}, "max-entries: 9223372036854775807, expected 1 to 1073741824 messages"},
	} {
		if _, _, err := Factory.New(tc.section.Decode); err == nil || err.Error() != tc.want {
			t.Errorf("%v: got %v, want %s", tc.section, err, tc.want)
		}
	}
}

// with returns the contents of a message with a deduplication header.
func with(v any) hooktest.Content {
	return hooktest.Content{Headers: map[string]any{defaultHeader: sent(v)}}
}

// routes reports whether an exchange of the type routes a message.
func routes(tb testing.TB, e *hooktest.Exchange, at hook.Instant, c hooktest.Content) bool {
	tb.Helper()
	queues, err := e.Route(hooktest.Publish(at, "", c))
	if err != nil {
		tb.Fatal(err)
	}
	return len(queues) > 0
}

func newType(tb testing.TB, as hook.Args) *hooktest.Exchange {
	tb.Helper()
	e := hooktest.NewExchange(tb, hooktest.New(tb, Factory, nil), hooktest.ExchangeSpec{Type: exchangeType, Args: as})
	if err := e.Bind("q", ""); err != nil {
		tb.Fatal(err)
	}
	return e
}

func TestExchangeArguments(t *testing.T) {
	const (
		size        = "Missing or invalid argument, 'x-cache-size' must be an integer greater than 0"
		ttl         = "Invalid argument, 'x-cache-ttl' must be an integer greater than 0"
		persistence = "Invalid argument, 'x-cache-persistence' must be 'memory': caches are not kept on disk"
		header      = "Invalid argument, 'x-deduplication-header' must be a string of 1 to 255 bytes"
	)
	p := hooktest.New(t, Factory, nil)
	for _, tc := range []struct {
		kind string // "" = the type
		args hook.Args
		want string // "" = accepted
	}{
		{want: size},
		{args: args("x-cache-size", nil), want: size},
		{args: args("x-cache-size", int32(0)), want: size},
		{args: args("x-cache-size", int64(math.MinInt64)), want: size},
		{args: args("x-cache-size", 10.0), want: size},
		{args: args("x-cache-size", "foo"), want: size},
		{args: args("x-cache-size", "10foo"), want: size},
		{args: args("x-cache-size", "-1"), want: size},
		{args: args("x-cache-size", int64(1)<<62), want: "Invalid argument, 'x-cache-size' must be an integer from 1 to 1000000, got 4611686018427387904"},
		{args: args("x-cache-size", "99999999999999999999"), want: size},
		{args: args("x-cache-size", int32(1_000_001)), want: "Invalid argument, 'x-cache-size' must be an integer from 1 to 1000000, got 1000001"},
		{args: args("x-cache-size", int16(10))},
		{args: args("x-cache-size", uint32(1_000_000))},
		{args: args("x-cache-size", "10")},
		{args: args("x-cache-size", int64(1), "x-cache-ttl", int64(math.MaxInt64), "x-cache-persistence", "memory")},
		{args: args("x-cache-size", int64(1), "x-cache-ttl", "1000", "x-deduplication-header", "id")},
		{args: args("x-cache-size", int64(1), "x-cache-ttl", int32(0)), want: ttl},
		{args: args("x-cache-size", int64(1), "x-cache-ttl", "bar"), want: ttl},
		{args: args("x-cache-size", int64(1), "x-cache-ttl", true), want: ttl},
		{args: args("x-cache-size", int64(1), "x-cache-persistence", "ram"), want: persistence},
		{args: args("x-cache-size", int64(1), "x-cache-persistence", int32(1)), want: persistence},
		{args: args("x-cache-size", int64(1), "x-cache-persistence", "disk"), want: persistence},
		{args: args("x-cache-size", int64(1), "x-deduplication-header", ""), want: header},
		{args: args("x-cache-size", int64(1), "x-deduplication-header", strings.Repeat("h", 256)), want: header},
		{args: args("x-cache-size", int64(1), "x-deduplication-header", int32(7)), want: header},
		{kind: "topic", args: args("x-message-deduplication", true)},
		{kind: "topic", args: args("x-message-deduplication", "true"), want: "Invalid argument, 'x-message-deduplication' must be a boolean"},
		{kind: "topic", args: args("x-message-deduplication", true, "x-cache-size", int32(-1)), want: size},
		{kind: "topic", args: args("x-message-deduplication", true, "x-deduplication-header", nil), want: header},
		{kind: "topic", args: args("x-message-deduplication", false, "x-cache-size", "what", "x-cache-ttl", nil)},
		{kind: "topic", args: args("x-cache-persistence", "elsewhere")}, // it means nothing there
	} {
		kind := tc.kind
		if kind == "" {
			kind = exchangeType
		}
		_, err := hooktest.Declare(p, hooktest.ExchangeSpec{Type: kind, Args: tc.args})
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%s %v: got %v, want %q", kind, tc.args, err, tc.want)
		}
	}
}

// Values are compared as by RabbitMQ's plugin: by value, whatever their AMQP type, but never across kinds.
func TestHeaderValues(t *testing.T) {
	same := [][]any{
		{"a"},
		{"b"},
		{""},
		{[]byte("c"), "c"},
		{int8(42), uint8(42), int16(42), uint16(42), int32(42), uint32(42), int64(42)},
		{"42"},
		{int64(-42)},
		{42.0},
		{float32(4.5), 4.5},
		{4.2},
		{float32(4.2)},
		{true},
		{false},
		{int32(1)},
		{int32(0)},
		{1.0},
		{0.0},
		{nil},
		{timestamp(42)},
		{timestamp(0)},
		// Values whose milliseconds do not fit into an int64 were all equal: messages were lost.
		{timestamp(1 << 60)},
		{timestamp(1<<60 + 1)},
		{timestamp(math.MaxUint64)},
	}
	e := newType(t, args("x-cache-size", 1000))
	for _, values := range same {
		for i, v := range values {
			if got := routes(t, e, now, with(v)); got != (i == 0) {
				t.Errorf("%T %v, number %d of its kind: routed %t", v, v, i, got)
			}
			if routes(t, e, now, with(v)) {
				t.Errorf("%T %v: routed twice", v, v)
			}
		}
	}
}

func TestMessagesWithoutAKeyAreNoDuplicates(t *testing.T) {
	e := newType(t, args("x-cache-size", 1000))
	for _, c := range []hooktest.Content{
		{},
		{Headers: map[string]any{"other": "a"}},
		with(decimal{}), with([]any{"a"}), with(map[string]any{"a": 1}),
	} {
		for range 3 {
			if !routes(t, e, now, c) {
				t.Errorf("%v was taken for a duplicate", c.Headers)
			}
		}
	}
}

// timestamp is a value of one of the broker's own types.
type timestamp uint64

func (timestamp) AMQPType() string { return "timestamp" }

// decimal is a value of the broker's own types.
type decimal struct{}

func (decimal) AMQPType() string { return "decimal" }

func TestTTL(t *testing.T) {
	e := newType(t, args("x-cache-size", 10, "x-cache-ttl", 1000))
	withTTL := func(v string, ttl any) hooktest.Content {
		return hooktest.Content{Headers: map[string]any{defaultHeader: v, "x-cache-ttl": sent(ttl)}}
	}
	for _, step := range []struct {
		at   time.Duration
		c    hooktest.Content
		want bool
	}{
		{0, with("a"), true},
		{time.Second - 1, with("a"), false},
		{time.Second, with("a"), true}, // a duplicate does not prolong it
		{2*time.Second - 1, with("a"), false},
		{2 * time.Second, with("a"), true},
		{2 * time.Second, withTTL("b", int32(5000)), true},
		{7*time.Second - 1, with("b"), false},
		{7 * time.Second, with("b"), true},
		{7 * time.Second, withTTL("c", "10"), true}, // digits are a number
		{7*time.Second + 10*time.Millisecond, with("c"), true},
		{8 * time.Second, withTTL("d", 0), true}, // not remembered
		{8 * time.Second, withTTL("d", -5), true},
		{8 * time.Second, withTTL("d", "soon"), true}, // no number: the exchange's
		{8*time.Second + 999*time.Millisecond, with("d"), false},
		{8 * time.Second, withTTL("f", true), true}, // a boolean and a timestamp are none either, but were read as one
		{8 * time.Second, withTTL("g", timestamp(5)), true},
		{9*time.Second - 1, with("f"), false},
		{9*time.Second - 1, with("g"), false},
		{9 * time.Second, with("g"), true},
		{9 * time.Second, withTTL("e", int64(math.MaxInt64)), true},
		{100 * 365 * 24 * time.Hour, with("e"), false},
		{-time.Hour, with("e"), false}, // time that steps back is no reason to forget
	} {
		if got := routes(t, e, now.Add(step.at), step.c); got != step.want {
			t.Errorf("at %s, %v: routed %t, want %t", step.at, step.c.Headers, got, step.want)
		}
	}
}

func TestTheOldestGoesFirst(t *testing.T) {
	e := newType(t, args("x-cache-size", "2"))
	var got []string
	for _, v := range []string{"a", "b", "a", "c", "a", "b", "c", "c"} {
		if routes(t, e, now, with(v)) {
			got = append(got, v)
		}
	}
	if s := strings.Join(got, " "); s != "a b c a b c" {
		t.Errorf("routed %s", s)
	}
}

func TestFilter(t *testing.T) {
	p := hooktest.New(t, Factory, nil)
	declare := func(as hook.Args) *hooktest.Exchange {
		return hooktest.NewExchange(t, p, hooktest.ExchangeSpec{Type: "topic", Args: as})
	}
	named := declare(args("x-message-deduplication", true, "x-deduplication-header", "id"))
	plain, off := declare(nil), declare(args("x-message-deduplication", false, "x-cache-size", 1))
	a := hooktest.Content{Headers: map[string]any{"id": "a", defaultHeader: "other"}}
	for _, tc := range []struct {
		what string
		e    *hooktest.Exchange
		want bool
	}{{"first", named, true}, {"second", named, false}, {"another exchange", plain, true}, {"off", off, true}, {"still off", off, true}} {
		if got := tc.e.Passes(hooktest.Publish(now, "k", a)); got != tc.want {
			t.Errorf("%s: passes %t, want %t", tc.what, got, tc.want)
		}
	}
	if !named.Passes(hooktest.Publish(now, "k", with("other"))) {
		t.Error("the argument names the header, and another one was looked at")
	}
}

func TestDefaultCacheSize(t *testing.T) {
	e := hooktest.NewExchange(t, hooktest.New(t, Factory, nil), hooktest.ExchangeSpec{Type: "topic", Args: args("x-message-deduplication", true)})
	for i := range defaultSize + 1 {
		e.Passes(hooktest.Publish(now, "", with(i)))
	}
	if e.Passes(hooktest.Publish(now, "", with(int64(1)))) {
		t.Error("the 128th message from the end is forgotten")
	}
	if !e.Passes(hooktest.Publish(now, "", with(int64(0)))) {
		t.Error("more than 128 messages are remembered")
	}
}

func TestBindings(t *testing.T) {
	e := newType(t, args("x-cache-size", 100))
	for _, key := range []string{"x", "y"} {
		if err := e.Bind("r", key); err != nil {
			t.Fatal(err)
		}
	}
	queues := func(v string) string { return e.Queues(t, "unheeded", with(v)) }
	if got := queues("1"); got != "q r" {
		t.Errorf("got %q, want q r", got)
	}
	e.Unbind("r", "x")
	if got := queues("2"); got != "q r" {
		t.Errorf("with one binding less: got %q, want q r", got)
	}
	e.Unbind("r", "y")
	e.Unbind("q", "")
	if got := queues("3"); got != "" {
		t.Errorf("without bindings: got %q", got)
	}
	if err := e.Bind("s", ""); err != nil {
		t.Fatal(err)
	}
	if got := queues("3"); got != "" { // a message that led nowhere was seen all the same, as in RabbitMQ
		t.Errorf("got %q, want nothing", got)
	}
	if got := queues("4"); got != "s" {
		t.Errorf("got %q, want s", got)
	}
}

// If equal messages arrive at once, exactly one passes.
func TestEqualMessagesAtOnce(t *testing.T) {
	const goroutines, values = 8, 5000
	e := newType(t, args("x-cache-size", values))
	passed := make([][]int, goroutines)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range values {
				if queues, err := e.Route(hooktest.Publish(now, "", with(int32(i)))); err == nil && len(queues) > 0 {
					passed[g] = append(passed[g], i)
				}
			}
		})
	}
	wg.Wait()
	times := make([]int, values)
	for _, is := range passed {
		for _, i := range is {
			times[i]++
		}
	}
	for i, n := range times {
		if n != 1 {
			t.Fatalf("message %d passed %d times", i, n)
		}
	}
}

// A dead letter with at-least-once used to count as its own duplicate when it was tried again.
func TestAMessageIsNoDuplicateOfItself(t *testing.T) {
	e := newType(t, args("x-cache-size", 10))
	for _, tc := range []struct {
		name            string
		again, filtered bool
	}{
		{name: "first"},
		{name: "tried again", again: true},
		{name: "another", filtered: true},
	} {
		m := hooktest.Publish(now, "", with("a"))
		m.Again = tc.again
		queues, err := e.Route(m)
		if err != nil || m.Filtered != tc.filtered || (len(queues) == 0) != tc.filtered {
			t.Errorf("%s: goes to %v, filtered: %v, error %v", tc.name, queues, m.Filtered, err)
		}
	}
}
