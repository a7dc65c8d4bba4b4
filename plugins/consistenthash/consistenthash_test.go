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

// CC and BCC headers are ignored: a message goes once, to where its routing key leads.
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

// No weight needs more than twice the memory of the lowest, and nothing remains when bindings are removed.
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

// Deleting a queue with 20,000 bindings used to take half a second or more, in which no other message was routed: its points moved with
// each removed binding.
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

// The cells keep ring's invariants in each step of a sequence with points at the same positions and at the ends of the circle.
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
