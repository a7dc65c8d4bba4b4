package consistenthash

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	weights := []string{"1", "2", "3", "7", "250", "+4", "2147483647"}
	parts := map[hook.Part][]byte{
		hook.PartMessageID: []byte("m-1"), hook.PartCorrelationID: []byte("c-1"), hook.PartTimestamp: []byte("1700000000"),
	}
	contents := []hooktest.Content{{}, {Parts: parts}, {Headers: map[string]any{"customer": "42"}}, {Headers: map[string]any{"customer": 1.5}}}
	at := func(name string, args ...hook.Arg) hooktest.Case {
		return hooktest.Case{Name: name, Exchange: hooktest.ExchangeSpec{
			Type: "x-consistent-hash", Args: args, Keys: weights, Contents: contents, BindingArgs: []hook.Args{nil, {{Name: "n", Value: int32(1)}}},
		}}
	}
	hooktest.Run(t, Factory,
		at("routing key"),
		at("header", hook.Arg{Name: "hash-header", Value: "customer"}),
		at("header, as LavinMQ calls it", hook.Arg{Name: "x-hash-on", Value: "customer"}),
		at("correlation ID", hook.Arg{Name: "hash-property", Value: "correlation_id"}),
		at("message ID", hook.Arg{Name: "hash-property", Value: "message_id"}),
		at("timestamp", hook.Arg{Name: "hash-property", Value: "timestamp"}))
}

func declare(tb testing.TB, args ...hook.Arg) (*hooktest.Exchange, error) {
	tb.Helper()
	return hooktest.Declare(hooktest.New(tb, Factory, nil), hooktest.ExchangeSpec{Type: "x-consistent-hash", Args: args})
}

func exchange(tb testing.TB, args ...hook.Arg) *hooktest.Exchange {
	tb.Helper()
	x, err := declare(tb, args...)
	if err != nil {
		tb.Fatal(err)
	}
	return x
}

func bind(tb testing.TB, x *hooktest.Exchange, queue, weight string, args ...hook.Arg) {
	tb.Helper()
	if err := x.Bind(queue, weight, args...); err != nil {
		tb.Fatal(err)
	}
}

// bound is a router with queues of these weights.
func bound(weights ...string) *router {
	r := newRouter(&hook.Exchange{}).(*router)
	for i, w := range weights {
		r.Bind(bindingOf(i, w))
	}
	r.Prepare()
	return r
}

func bindingOf(queue int, weight string) *hook.Binding {
	return &hook.Binding{Destination: hook.Destination(queue), Name: fmt.Sprint("queue-", queue), Key: weight}
}

// to returns the destination of a message with this hash.
func (r *router) to(h uint64) hook.Destination {
	r.Prepare()
	return r.nodes[r.place(h)].dest
}

// Messages went to these queues in the first release. If this test fails, an upgrade would send messages elsewhere.
func TestPlacementNeverChanges(t *testing.T) {
	x := exchange(t)
	for q, w := range map[string]string{"q1": "1", "q2": "1", "q3": "2", "q4": "3", "q5": "7"} {
		bind(t, x, q, w)
	}
	y := exchange(t)
	for i := range 10 {
		bind(t, y, fmt.Sprint("q", i), "1")
	}
	var gotX, gotY []string
	for i := range 16 {
		gotX = append(gotX, x.Queues(t, fmt.Sprint("order.", i*100), hooktest.Content{}))
		gotY = append(gotY, y.Queues(t, strings.Repeat("ü", i), hooktest.Content{}))
	}
	if want := []string{"q5", "q1", "q5", "q5", "q5", "q5", "q5", "q4", "q2", "q5", "q2", "q3", "q5", "q4", "q3", "q3"}; !slices.Equal(gotX, want) {
		t.Errorf("got  %q\nwant %q", gotX, want)
	}
	if want := []string{"q0", "q7", "q7", "q8", "q4", "q4", "q0", "q1", "q2", "q0", "q2", "q7", "q1", "q2", "q8", "q8"}; !slices.Equal(gotY, want) {
		t.Errorf("got  %q\nwant %q", gotY, want)
	}
}

func TestHashesNeverChange(t *testing.T) {
	for key, want := range map[string]uint64{
		"": 0, "a": 0x7aba1c7983221869, "order.1": 0x94308f6f77cbcb98, "12345678": 0x95fe1c10a9bf61ca,
		"123456789": 0xba78dcca948e0fae, "123e4567-e89b-12d3-a456-426614174000": 0xfdcd49c0f2eabc,
	} {
		if got := hashKey(key); got != want {
			t.Errorf("%q: %#x, want %#x", key, got, want)
		}
		if hashKey(key) != hashKey([]byte(key)) {
			t.Errorf("%q has another hash as bytes", key)
		}
	}
	if got, want := hashName("q1", false), uint64(0xa3e1c0c5b25f9477); got != want {
		t.Errorf("queue q1: %#x, want %#x", got, want)
	}
	if got, want := hashName("q1", true), uint64(0xe337e341e3a907cf); got != want {
		t.Errorf("exchange q1: %#x, want %#x", got, want)
	}
}

// naive places messages by the definition: the nearest of all points of all destinations.
func (r *router) naive(h uint64) hook.Destination {
	r.Prepare()
	var best *node
	least := math.Inf(1)
	var leastPoint uint32
	for i := range r.nodes {
		n := &r.nodes[i]
		if n.weight == 0 {
			continue
		}
		count := int(math.Round(256 * float64(n.weight) / math.Exp2(math.Floor(math.Log2(float64(n.weight))))))
		for j := range count {
			point := uint32(mix(n.name+uint64(j)*wordFactor) >> 33)
			state := h
			for range 6 {
				state += wordFactor
				for _, p := range []uint32{uint32(mix(state)), uint32(mix(state) >> 32)} {
					d := float64((point-p)%circle) / math.Exp2(math.Floor(math.Log2(float64(n.weight))))
					if d < least || d == least && n != best && (point < leastPoint || point == leastPoint && n.name < best.name) {
						best, least, leastPoint = n, d, point
					}
				}
			}
		}
	}
	return best.dest
}

// Queues come and go with all sorts of weights; messages go where the definition says, and where they would go if the same queues
// had been bound in another order.
func TestModel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	weights := []string{"1", "1", "1", "2", "3", "5", "100", "1023", "2147483647"}
	x := bound()
	type binding struct {
		queue  int
		weight string
	}
	var model []binding
	for range 150 {
		b := binding{r.IntN(40), weights[r.IntN(len(weights))]}
		switch i := slices.Index(model, b); {
		case i < 0 && r.IntN(5) > 0:
			x.Bind(bindingOf(b.queue, b.weight))
			model = append(model, b)
		case i >= 0:
			x.Unbind(bindingOf(b.queue, b.weight))
			model = slices.Delete(model, i, i+1)
		}
		if len(model) == 0 {
			continue
		}
		other := bound()
		for _, i := range r.Perm(len(model)) {
			other.Bind(bindingOf(model[i].queue, model[i].weight))
		}
		for range 3 {
			h := r.Uint64()
			if got, want := x.to(h), x.naive(h); got != want {
				t.Fatalf("with %v, %#x goes to %d, want %d", model, h, got, want)
			}
			if got, want := other.to(h), x.to(h); got != want {
				t.Fatalf("with %v, %#x goes to %d, bound in another order to %d", model, h, want, got)
			}
		}
	}
	for _, b := range model {
		x.Unbind(bindingOf(b.queue, b.weight))
	}
	if dst := x.Route(hooktest.Publish(0, "k", hooktest.Content{}), nil); len(dst) != 0 || len(x.index) != 0 || len(x.used) != 0 {
		t.Errorf("with nothing bound: routes to %v, %d destinations, rings %v", dst, len(x.index), x.used)
	}
}

// Two exchanges of RabbitMQ 3.10 with weights 1 to 2: 101, 98, 216 and 185 of 600 messages. Here 100,000 differ by a few percent.
func TestWeights(t *testing.T) {
	many := func(n int, w string) []string { return slices.Repeat([]string{w}, n) }
	for _, tc := range []struct {
		name    string
		weights []string
		within  float64 // of a share
	}{
		{"one", many(1, "7"), 0},
		{"2", many(2, "1"), 0.04},
		{"3", many(3, "1"), 0.04},
		{"10", many(10, "1"), 0.05},
		{"100", many(100, "1"), 0.08},
		{"README", []string{"1", "1", "2", "2"}, 0.04},
		{"steps", []string{"1", "2", "3", "4", "5"}, 0.05},
		{"far apart", []string{"10", "1000"}, 0.10},
		{"highest", append(many(9, "2147483647"), "1073741824"), 0.05},
		{"many rings", []string{"1", "2", "4", "8", "16", "32"}, 0.06},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const messages = 200_000
			r, sum := bound(tc.weights...), 0.0
			for _, n := range r.nodes {
				sum += float64(n.weight)
			}
			got := make([]int, len(tc.weights))
			for i := range messages {
				got[r.to(hashKey(fmt.Sprint("customer ", i)))]++
			}
			for i, n := range r.nodes {
				want := messages * float64(n.weight) / sum
				if math.Abs(float64(got[i])-want) > want*tc.within {
					t.Errorf("queue %d of weight %d got %d messages, want %.0f within %.0f %%", i, n.weight, got[i], want, 100*tc.within)
				}
			}
		})
	}
}

// A queue that comes takes its share from all others, and gives it back when it goes. No message moves between the others.
func TestOnlyTheShareOfAQueueMoves(t *testing.T) {
	const messages = 20_000
	for _, n := range []int{1, 2, 9, 99} {
		r := bound(slices.Repeat([]string{"1"}, n)...)
		before := make([]hook.Destination, messages)
		for i := range before {
			before[i] = r.to(hashKey(strconv.Itoa(i)))
		}
		r.Bind(bindingOf(n, "1"))
		moved := 0
		for i := range before {
			now := r.to(hashKey(strconv.Itoa(i)))
			if now != before[i] {
				moved++
			}
			if now != before[i] && now != hook.Destination(n) {
				t.Fatalf("%d queues: message %d moved from queue %d to %d, which is not new", n, i, before[i], now)
			}
		}
		share := messages / (n + 1)
		if moved < share*75/100 || moved > share*125/100 {
			t.Errorf("%d queues: %d messages moved to a new one, want about %d", n, moved, share)
		}
		r.Unbind(bindingOf(n, "1"))
		for i := range before {
			if now := r.to(hashKey(strconv.Itoa(i))); now != before[i] {
				t.Fatalf("%d queues: message %d went to %d before another queue came and went, now to %d", n, i, before[i], now)
			}
		}
	}
}

// A higher weight takes messages from others. Where it passes a power of two, the queue's points change, and it gives a few away.
func TestChangeOfWeight(t *testing.T) {
	const messages = 20_000
	r := bound("1", "1", "1")
	for _, tc := range []struct {
		weight string
		away   int // at most
	}{{"2", 0}, {"3", 0}, {"4", messages / 16}, {"5", 0}, {"7", 0}, {"100", messages / 16}, {"127", 0}} {
		before := make([]hook.Destination, messages)
		for i := range before {
			before[i] = r.to(hashKey(strconv.Itoa(i)))
		}
		old := r.nodes[0].weight
		r.Bind(bindingOf(0, tc.weight)) // as one changes a weight without a gap: the new binding first
		r.Unbind(bindingOf(0, strconv.FormatUint(uint64(old), 10)))
		away, among := 0, 0
		for i := range before {
			switch now := r.to(hashKey(strconv.Itoa(i))); {
			case now == before[i] || now == 0:
			case before[i] == 0:
				away++
			default:
				among++
			}
		}
		if away > tc.away || among > 0 {
			t.Errorf("weight %d to %s: %d of %d messages left the queue, want at most %d; %d moved between others",
				old, tc.weight, away, messages, tc.away, among)
		}
	}
}

// Of several bindings to one queue the highest weight counts, whichever came first. RabbitMQ uses that of the first one, after a restart
// another, and none at all when any of them goes.
func TestSeveralBindingsOfAQueue(t *testing.T) {
	for _, order := range [][]string{{"1", "3", "2"}, {"3", "2", "1"}, {"2", "1", "3"}} {
		r := bound("1", "1")
		check := func(what string, want ...string) {
			t.Helper()
			other := bound(want...)
			for i := range 2000 {
				if h := hashKey(strconv.Itoa(i)); r.to(h) != other.to(h) {
					t.Fatalf("order %v, %s: not as with weights %v", order, what, want)
				}
			}
		}
		r.Unbind(bindingOf(0, "1"))
		for _, w := range order {
			r.Bind(bindingOf(0, w))
		}
		check("all", "3", "1")
		r.Unbind(bindingOf(0, "3"))
		check("without 3", "2", "1")
		r.Unbind(bindingOf(0, "1"))
		check("without 1", "2", "1")
	}
	x := exchange(t)
	bind(t, x, "a", "1", hook.Arg{Name: "n", Value: int32(1)})
	bind(t, x, "a", "1", hook.Arg{Name: "n", Value: int32(2)})
	x.Unbind("a", "1", hook.Arg{Name: "n", Value: int32(1)})
	if got := x.Queues(t, "k", hooktest.Content{}); got != "a" {
		t.Errorf("one of two bindings was removed, and a message goes to %q", got)
	}
}

// A queue and an exchange of one name are two destinations.
func TestQueueAndExchangeOfOneName(t *testing.T) {
	r := bound()
	r.Bind(&hook.Binding{Destination: 0, Name: "same", Key: "1"})
	r.Bind(&hook.Binding{Destination: 1, Name: "same", Key: "1", ToExchange: true})
	var got [2]int
	for i := range 10_000 {
		got[r.to(hashKey(strconv.Itoa(i)))]++
	}
	if got[0] < 4500 || got[1] < 4500 {
		t.Errorf("the queue got %d messages and the exchange %d", got[0], got[1])
	}
}

// CC and BCC headers play no part: a message goes where its routing key says, once.
func TestCarbonCopies(t *testing.T) {
	x := exchange(t)
	for i := range 5 {
		bind(t, x, fmt.Sprint("q", i), "1")
	}
	want, _ := x.Route(hooktest.Publish(0, "k", hooktest.Content{}))
	for i := range 20 {
		if got, _ := x.Route(hooktest.Publish(0, "k", hooktest.Content{}, strconv.Itoa(i), "x")); !slices.Equal(got, want) {
			t.Fatalf("with CC %d it went to %q, without to %q", i, got, want)
		}
	}
}

func TestWhatPlacesAMessage(t *testing.T) {
	type content = hooktest.Content
	header := func(v any) content { return content{Headers: map[string]any{"h": v}} }
	part := func(p hook.Part, s string) content { return content{Parts: map[hook.Part][]byte{p: []byte(s)}} }
	byHeader := hook.Arg{Name: "hash-header", Value: "h"}
	property := func(name string) hook.Arg { return hook.Arg{Name: "hash-property", Value: name} }
	for _, tc := range []struct {
		name string
		arg  hook.Arg
		m    content
		want string // placed as a routing key of this text
	}{
		{"text", byHeader, header("abc"), "abc"},
		{"binary", byHeader, header([]byte("abc")), "abc"},
		{"LavinMQ's argument", hook.Arg{Name: "x-hash-on", Value: "h"}, header("abc"), "abc"},
		{"empty", byHeader, header(""), ""},
		{"missing", byHeader, content{}, ""},
		{"another header", byHeader, content{Headers: map[string]any{"i": "abc"}}, ""},
		{"void", byHeader, header(nil), ""},
		{"numbers are placed as their digits", byHeader, header(int32(-42)), "-42"},
		{"of whatever type", byHeader, header(int64(-42)), "-42"},
		{"large", byHeader, header(int64(math.MaxInt64)), "9223372036854775807"},
		{"byte", byHeader, header(uint8(200)), "200"},
		{"true is 1", byHeader, header(true), "1"},
		{"whole double", byHeader, header(float64(3)), "3"},
		{"double", byHeader, header(2.5), "2.5"},
		{"float", byHeader, header(float32(0.1)), "0.10000000149011612"},
		{"array", byHeader, header([]any{"a", int32(1), nil}), `["a",1,_,]`},
		{"nested", byHeader, header([]any{[]any{}, struct{ A, B any }{1, "x"}}), `[[],{1,"x",},]`},
		{"correlation ID", property("correlation_id"), part(hook.PartCorrelationID, "c"), "c"},
		{"message ID", property("message_id"), part(hook.PartMessageID, "m"), "m"},
		{"timestamp", property("timestamp"), part(hook.PartTimestamp, "1700000000"), "1700000000"},
		{"no property", property("timestamp"), part(hook.PartMessageID, "m"), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRouter(&hook.Exchange{Args: hook.Args{tc.arg}}).(*router)
			m := hooktest.Publish(0, "the routing key", tc.m)
			if got, want := r.on.hash(m), hashKey(tc.want); got != want {
				t.Errorf("not placed as %q", tc.want)
			}
			if !m.Read() {
				t.Error("the broker would take the route for one of all messages with the routing key")
			}
		})
	}
	m := hooktest.Publish(0, "the routing key", header("abc"))
	if r := bound("1"); r.on.hash(m) != hashKey("the routing key") || m.Read() {
		t.Error("without arguments, not placed by the routing key alone")
	}
}

func TestArguments(t *testing.T) {
	arg := func(name string, v any) hook.Arg { return hook.Arg{Name: name, Value: v} }
	const exclusive = "hash-header and hash-property are mutually exclusive"
	wrong := func(typ, name string) string {
		return "invalid type '" + typ + "' for arg '" + name + "' in exchange 'x' in vhost '/': expected longstr"
	}
	for _, tc := range []struct {
		args hook.Args
		want string
	}{
		{nil, ""},
		{hook.Args{arg("hash-header", "")}, ""},
		{hook.Args{arg("hash-property", "timestamp")}, ""},
		{hook.Args{arg("unknown", 1), arg("x-algorithm", "jump")}, ""},
		// RabbitMQ's texts.
		{hook.Args{arg("hash-property", "user_id")}, "Unsupported property: user_id"},
		{hook.Args{arg("hash-property", "")}, "Unsupported property: "},
		{hook.Args{arg("hash-header", "a"), arg("hash-property", "message_id")}, exclusive},
		{hook.Args{arg("hash-header", "a"), arg("hash-property", "x")}, exclusive},
		// RabbitMQ 3.10 closes the connection with INTERNAL_ERROR.
		{hook.Args{arg("hash-header", int32(5))}, wrong("signedint", "hash-header")},
		{hook.Args{arg("hash-header", nil)}, wrong("void", "hash-header")},
		{hook.Args{arg("hash-property", true)}, wrong("bool", "hash-property")},
		{hook.Args{arg("x-hash-on", []byte("h"))}, wrong("binary", "x-hash-on")},
		{hook.Args{arg("x-hash-on", "a"), arg("hash-header", "a")}, "x-hash-on is mutually exclusive with hash-header and hash-property"},
		{hook.Args{arg("x-hash-on", "a"), arg("hash-property", "timestamp")}, "x-hash-on is mutually exclusive with hash-header and hash-property"},
	} {
		_, err := declare(t, tc.args...)
		if err == nil {
			err = errors.New("")
		}
		if err.Error() != tc.want {
			t.Errorf("%v:\n got %q\nwant %q", tc.args, err, tc.want)
		}
	}
}

func TestBindingKeys(t *testing.T) {
	integer := func(term string) string { return "The binding key must be an integer: " + term }
	const positive = "The binding key must be greater than 0"
	limit := func(key string) string {
		return "The binding key must be an integer from 1 to 2147483647: <<\"" + key + "\">>"
	}
	for key, want := range map[string]string{
		"1": "", "+1": "", "01": "", "2147483647": "", strings.Repeat("0", 200) + "1": "",
		// RabbitMQ's texts.
		"": integer("<<>>"), "a": integer(`<<"a">>`), " 1": integer(`<<" 1">>`), "1 ": integer(`<<"1 ">>`), "1.5": integer(`<<"1.5">>`),
		"1e3": integer(`<<"1e3">>`), "0x1": integer(`<<"0x1">>`), "1_0": integer(`<<"1_0">>`), `a"b`: integer(`<<"a\"b">>`),
		"x\x00": integer("<<120,0>>"), "-": integer(`<<"-">>`), "#": integer(`<<"#">>`),
		"0": positive, "-0": positive, "-1": positive, "-99999999999999999999": positive,
		// RabbitMQ 3.10 ends its process.
		"2147483648": limit("2147483648"), "18446744073709551616": limit("18446744073709551616"),
		strings.Repeat("9", 255): limit(strings.Repeat("9", 255)),
	} {
		err := exchange(t).Bind("q", key)
		if err == nil {
			err = errors.New("")
		}
		if err.Error() != want {
			t.Errorf("%q:\n got %q\nwant %q", key, err, want)
		}
	}
}

// No weight needs more memory than two of the lowest, and nothing stays when bindings go.
func TestMemory(t *testing.T) {
	size := func(r *router) (cells int) {
		for i := range r.rings {
			cells += len(r.rings[i].cells)
		}
		return cells
	}
	low, high := size(bound("1", "1", "1", "1")), size(bound("2147483647", "2147483647", "2147483647", "2147483647"))
	if high > 2*low+spare {
		t.Errorf("four queues take %d cells with the lowest weight, %d with the highest", low, high)
	}
	r := bound()
	for range 3 {
		for i := range 1000 {
			r.Bind(bindingOf(i, "1000"))
		}
		r.Prepare()
		for i := range 1000 {
			r.Unbind(bindingOf(i, "1000"))
			r.Bind(bindingOf(i, "1"))
			r.Unbind(bindingOf(i, "1"))
		}
	}
	if cells := size(r); cells > 2*minCells || len(r.nodes) > 1000 || len(r.changed) > 1000 {
		t.Errorf("%d cells, %d nodes and %d changes are left of 1000 queues", cells, len(r.nodes), len(r.changed))
	}
}

// A queue with 20,000 bindings was deleted in half a second or more, in which no other message was routed: its points moved with
// each binding that went.
func TestPointsMoveOnceForManyBindings(t *testing.T) {
	const most = 1000
	r := newRouter(&hook.Exchange{}).(*router)
	weight := func() uint32 { return r.nodes[0].weight }
	for w := 1; w <= most; w++ {
		r.Bind(bindingOf(0, strconv.Itoa(w)))
	}
	if weight() != 0 {
		t.Errorf("points for weight %d before a message", weight())
	}
	if r.Prepare(); weight() != most {
		t.Errorf("points for weight %d, want %d", weight(), most)
	}
	for w := most; w > 1; w-- {
		r.Unbind(bindingOf(0, strconv.Itoa(w)))
	}
	if weight() != most {
		t.Errorf("points for weight %d before a message", weight())
	}
	if r.Prepare(); weight() != 1 {
		t.Errorf("points for weight %d, want 1", weight())
	}
	r.Unbind(bindingOf(0, "1"))
	if len(r.used) != 0 {
		t.Errorf("rings %v are left", r.used)
	}
}

// The cells hold what ring promises, at each step of a life with points at the same positions and at the ends of the circle.
func TestRing(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	before := func(a, b int32) bool { return a < b }
	type point struct {
		p    uint32
		node int32
	}
	var r ring
	model := map[point]bool{}
	for step := range 6000 {
		x := point{rnd.Uint32() % circle, rnd.Int32N(1000)}
		switch rnd.IntN(4) {
		case 0: // crowded
			x.p %= 64
		case 1:
			x.p = circle - 1 - x.p%3
		}
		grow := step%3000 < 1500
		switch {
		case grow && !model[x]:
			r.add(x.p, x.node, before)
			model[x] = true
		case !grow && len(model) > 1:
			for x = range model {
				break
			}
			r.remove(x.p, x.node, before)
			delete(model, x)
		}
		if step%50 > 0 {
			continue
		}
		sorted := make([]point, 0, len(model))
		for x := range model {
			sorted = append(sorted, x)
		}
		slices.SortFunc(sorted, func(a, b point) int {
			if a.p != b.p {
				return int(a.p) - int(b.p)
			}
			return int(a.node) - int(b.node)
		})
		for range 50 {
			p := rnd.Uint32() % circle
			if rnd.IntN(2) == 0 {
				p %= 70
			}
			want := sorted[0]
			if i := slices.IndexFunc(sorted, func(x point) bool { return x.p >= p }); i >= 0 {
				want = sorted[i]
			}
			found := r.find(p)
			if got := r.at(uint32(found)); got != want.node || uint32(found>>32) != (want.p-p)%circle {
				t.Fatalf("step %d: behind %d is %d at distance %d, want %v", step, p, got, found>>32, want)
			}
		}
	}
}

func TestRouteDoesNotAllocate(t *testing.T) {
	for _, args := range []hook.Args{nil, {{Name: "hash-header", Value: "h"}}, {{Name: "hash-property", Value: "message_id"}}} {
		r := newRouter(&hook.Exchange{Args: args}).(*router)
		for i := range 10 {
			r.Bind(bindingOf(i, "3"))
		}
		r.Prepare()
		for _, v := range []any{[]byte("text"), int32(1 << 20)} { // the kit copies strings
			m := hooktest.Publish(0, "key", hooktest.Content{
				Headers: map[string]any{"h": v}, Parts: map[hook.Part][]byte{hook.PartMessageID: []byte("m")},
			})
			dst := make([]hook.Destination, 0, 4)
			if n := testing.AllocsPerRun(100, func() { dst = r.Route(m, dst[:0]) }); n > 0 {
				t.Errorf("%v, header %v: %v allocations for each message", args, v, n)
			}
		}
	}
}

func FuzzBindingKey(f *testing.F) {
	for _, key := range []string{"1", "0", "-1", "2147483648", "x", "", "+7"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		w, err := parseWeight(key)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "The binding key must be ") {
				t.Errorf("%q: %v", key, err)
			}
			return
		}
		if w < 1 || w > maxWeight {
			t.Fatalf("%q is taken for the weight %d", key, w)
		}
		r := bound("1", key)
		r.to(1)
		r.Unbind(bindingOf(1, key))
		if r.to(1) != 0 {
			t.Errorf("%q: a queue gets messages after it was unbound", key)
		}
	})
}

func FuzzHeader(f *testing.F) {
	f.Add("h", "text", int64(1), 1.5)
	f.Fuzz(func(t *testing.T, name, text string, n int64, x float64) {
		r := newRouter(&hook.Exchange{Args: hook.Args{{Name: "hash-header", Value: name}}}).(*router)
		for i := range 3 {
			r.Bind(bindingOf(i, "1"))
		}
		r.Prepare()
		for _, v := range []any{text, []byte(text), n, x, []any{text, n, x, []any{nil}}, nil} {
			m := hooktest.Publish(0, "k", hooktest.Content{Headers: map[string]any{name: v}})
			a, b := r.Route(m, nil), r.Route(m, nil)
			if len(a) != 1 || !slices.Equal(a, b) {
				t.Errorf("%v leads to %v and %v", v, a, b)
			}
		}
	})
}

func BenchmarkRoute(b *testing.B) {
	for _, n := range []int{2, 10, 100, 1000, 10_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			r := bound(slices.Repeat([]string{"1"}, n)...)
			m := hooktest.Publish(0, "123e4567-e89b-12d3-a456-426614174000", hooktest.Content{})
			key := []byte(m.Key)
			var dst []hook.Destination
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				key[i%8] = byte(i) // another key each time, or the branches are known
				m.Key = string(key)
				dst = r.Route(m, dst[:0])
			}
			b.ReportMetric(float64(8*len(r.rings[0].cells))/float64(n), "B/queue")
		})
	}
}

func BenchmarkBind(b *testing.B) {
	for b.Loop() {
		bound(slices.Repeat([]string{"1"}, 10_000)...)
	}
}

func BenchmarkHash(b *testing.B) {
	key := "123e4567-e89b-12d3-a456-426614174000"
	for b.Loop() {
		hashKey(key)
	}
}
