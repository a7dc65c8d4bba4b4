package death

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

type (
	table = amqp.Table
	array = amqp.Array
)

const second = hook.Instant(1e9)

func died(queue string, reason hook.Reason, exchange string, at hook.Instant, keys ...string) Death {
	d := Death{Queue: queue, Reason: reason, Exchange: []byte(exchange), At: at}
	for _, k := range keys {
		d.Keys = append(d.Keys, []byte(k))
	}
	return d
}

func record(t *testing.T, r *Recorder, d Death, props []byte, recorded bool) []byte {
	t.Helper()
	r.Prepare(d)
	out, err := r.Append(nil, props, recorded)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func headersOf(t *testing.T, props []byte) table {
	t.Helper()
	p, err := amqp.ParseProperties(props)
	if err != nil {
		t.Fatal(err)
	}
	return p.Headers
}

// entry makes an entry of x-death from its specification.
func entry(expiration string, count int64, reason, queue string, seconds uint64, exchange string, keys ...any) table {
	var e table
	if expiration != "" {
		e = append(e, amqp.Field{Key: "original-expiration", Value: expiration})
	}
	return append(e, table{
		{Key: "count", Value: count},
		{Key: "reason", Value: reason},
		{Key: "queue", Value: queue},
		{Key: "time", Value: amqp.Timestamp(seconds)},
		{Key: "exchange", Value: exchange},
		{Key: "routing-keys", Value: array(keys)},
	}...)
}

func ends(which, exchange, queue, reason string) table {
	return table{
		{Key: "x-" + which + "-death-exchange", Value: exchange},
		{Key: "x-" + which + "-death-queue", Value: queue},
		{Key: "x-" + which + "-death-reason", Value: reason},
	}
}

func properties(headers table, expiration string) []byte {
	p := amqp.Properties{ContentType: "text/plain", DeliveryMode: 2, MessageID: "m1", AppID: "app", Timestamp: 7}
	p.Set(amqp.PropContentType, amqp.PropDeliveryMode, amqp.PropMessageID, amqp.PropAppID, amqp.PropTimestamp)
	if headers != nil {
		p.Headers = headers
		p.Set(amqp.PropHeaders)
	}
	if expiration != "" {
		p.Expiration = expiration
		p.Set(amqp.PropExpiration)
	}
	return p.Append(nil)
}

func concat(ts ...table) table {
	var all table
	for _, t := range ts {
		all = append(all, t...)
	}
	return all
}

func xdeath(entries ...any) table { return table{{Key: "x-death", Value: array(entries)}} }

// The first death of a bare message, octet by octet.
func TestGoldenFirstDeath(t *testing.T) {
	p := amqp.Properties{DeliveryMode: 2, Expiration: "5000"}
	p.Set(amqp.PropDeliveryMode, amqp.PropExpiration)
	var r Recorder
	got := record(t, &r, died("q", hook.ReasonExpired, "ex", 1700000000*second+999, "rk"), p.Append(nil), false)
	want := "3000" + // headers, delivery-mode
		"00000143" + // headers
		"07" + text("x-death") + "41" + "00000087" +
		"46" + "00000082" +
		"13" + text("original-expiration") + "53" + "00000004" + text("5000") +
		"05" + text("count") + "6c" + "0000000000000001" +
		"06" + text("reason") + "53" + "00000007" + text("expired") +
		"05" + text("queue") + "53" + "00000001" + text("q") +
		"04" + text("time") + "54" + "000000006553f100" +
		"08" + text("exchange") + "53" + "00000002" + text("ex") +
		"0c" + text("routing-keys") + "41" + "00000007" + "53" + "00000002" + text("rk") +
		"16" + text("x-first-death-exchange") + "53" + "00000002" + text("ex") +
		"13" + text("x-first-death-queue") + "53" + "00000001" + text("q") +
		"14" + text("x-first-death-reason") + "53" + "00000007" + text("expired") +
		"15" + text("x-last-death-exchange") + "53" + "00000002" + text("ex") +
		"12" + text("x-last-death-queue") + "53" + "00000001" + text("q") +
		"13" + text("x-last-death-reason") + "53" + "00000007" + text("expired") +
		"02" // delivery-mode
	if hex.EncodeToString(got) != want {
		t.Errorf("got\n%x\nwant\n%s", got, want)
	}
}

func text(s string) string { return hex.EncodeToString([]byte(s)) }

func TestAppend(t *testing.T) {
	d := died("q", hook.ReasonExpired, "ex", 1000*second, "rk", "cc")
	first, last := ends("first", "ex", "q", "expired"), ends("last", "ex", "q", "expired")
	alone := func(expiration string) table {
		return xdeath(entry(expiration, 1, "expired", "q", 1000, "ex", "rk", "cc"))
	}
	for _, c := range []struct {
		name       string
		headers    table
		expiration string
		want       table
	}{
		{"no headers", nil, "", concat(alone(""), first, last)},
		{"no headers, expiration", nil, "60000", concat(alone("60000"), first, last)},
		{"empty headers", table{}, "1", concat(alone("1"), first, last)},
		{"the number is kept, not how it was written", nil, "+0010", concat(alone("10"), first, last)},
		{"zero", nil, "-00", concat(alone("0"), first, last)},
		{
			"the publisher's headers, sorted",
			table{{Key: "z", Value: int8(1)}, {Key: "CC", Value: array{"cc"}}, {Key: "a", Value: nil}},
			"",
			concat(table{{Key: "CC", Value: array{"cc"}}, {Key: "a", Value: nil}}, alone(""), first, last, table{{Key: "z", Value: int8(1)}}),
		},
		{
			"between ours",
			table{
				{Key: "x-last-death-reasoning", Value: "5"},
				{Key: "x-delivery-count", Value: int64(2)},
				{Key: "x-first-death-exchange-", Value: "3"},
				{Key: "x", Value: "0"},
				{Key: "x-deat", Value: "1"},
			},
			"",
			concat(table{{Key: "x", Value: "0"}, {Key: "x-deat", Value: "1"}}, alone(""), table{{Key: "x-delivery-count", Value: int64(2)}}, first[:1],
				table{{Key: "x-first-death-exchange-", Value: "3"}}, first[1:], last, table{{Key: "x-last-death-reasoning", Value: "5"}}),
		},
		{
			"each key once, the first one stays",
			table{{Key: "b", Value: "1"}, {Key: "a", Value: "1"}, {Key: "b", Value: "2"}, {Key: "a", Value: int32(2)}, {Key: "b", Value: "3"}},
			"",
			concat(table{{Key: "a", Value: "1"}, {Key: "b", Value: "1"}}, alone(""), first, last),
		},
		{
			"what a client says of deaths is not believed",
			concat(xdeath(entry("", 9, "rejected", "q", 1, "", "x"), entry("", 7, "expired", "q", 1, "", "x")), ends("last", "l", "l", "l"), ends("first", "f", "f", "f")), "",
			concat(alone(""), first, last),
		},
		{"x-death of another type, twice", table{{Key: "x-death", Value: "no"}, {Key: "x-death", Value: int32(1)}, {Key: "y", Value: true}}, "", concat(alone(""), first, last, table{{Key: "y", Value: true}})},
		{
			"every type survives",
			table{{Key: "k", Value: table{{Key: "b", Value: float32(1)}, {Key: "a", Value: array{int16(-1), uint16(1), nil, array{}, table{}}}}}, {Key: "j", Value: amqp.Decimal{Scale: 2, Value: 314}}},
			"",
			concat(table{{Key: "j", Value: amqp.Decimal{Scale: 2, Value: 314}}, {Key: "k", Value: table{{Key: "b", Value: float32(1)}, {Key: "a", Value: array{int16(-1), uint16(1), nil, array{}, table{}}}}}}, alone(""), first, last),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r Recorder
			got := record(t, &r, d, properties(c.headers, c.expiration), false)
			if want := properties(c.want, ""); !bytes.Equal(got, want) {
				t.Errorf("headers\n%v, want\n%v\nprops\n%x, want\n%x", headersOf(t, got), c.want, got, want)
			}
		})
	}
}

func TestLaterDeaths(t *testing.T) {
	var r Recorder
	own := table{{Key: "user", Value: "u"}}
	m := record(t, &r, died("q1", hook.ReasonExpired, "", 10*second, "q1"), properties(own, "100"), false)
	first := ends("first", "", "q1", "expired")
	e1 := entry("100", 1, "expired", "q1", 10, "", "q1")

	m = record(t, &r, died("q2", hook.ReasonRejected, "dlx", 20*second, "k2", "cc"), m, true)
	e2 := entry("", 1, "rejected", "q2", 20, "dlx", "k2", "cc")
	check(t, m, concat(own, xdeath(e2, e1), first, ends("last", "dlx", "q2", "rejected")))

	m = record(t, &r, died("q1", hook.ReasonExpired, "dlx2", 30*second, "k3"), m, true)
	e1[1].Value = int64(2) // count; its other fields are those of the first death
	check(t, m, concat(own, xdeath(e1, e2), first, ends("last", "dlx2", "q1", "expired")))

	m = record(t, &r, died("q1", hook.ReasonMaxLen, "", 40*second, "k4"), m, true)
	e3 := entry("", 1, "maxlen", "q1", 40, "", "k4")
	check(t, m, concat(own, xdeath(e3, e1, e2), first, ends("last", "", "q1", "maxlen")))

	m = record(t, &r, died("q2", hook.ReasonRejected, "x", 50*second, "k5"), m, true)
	e2[0].Value = int64(2)
	check(t, m, concat(own, xdeath(e2, e3, e1), first, ends("last", "x", "q2", "rejected")))

	// An x-death that is not the broker's own is replaced.
	m = record(t, &r, died("q2", hook.ReasonDeliveryLimit, "x", 60*second), m, false)
	check(t, m, concat(own, xdeath(entry("", 1, "delivery_limit", "q2", 60, "x")), ends("first", "x", "q2", "delivery_limit"), ends("last", "x", "q2", "delivery_limit")))
}

func check(t *testing.T, props []byte, want table) {
	t.Helper()
	if !bytes.Equal(props, properties(want, "")) {
		t.Fatalf("headers\n%v, want\n%v", headersOf(t, props), want)
	}
}

// An invalid history is replaced.
func TestRecordedButUnreadable(t *testing.T) {
	fresh := concat(xdeath(entry("", 1, "expired", "q", 5, "", "q")), ends("first", "", "q", "expired"), ends("last", "", "q", "expired"))
	for _, headers := range []table{nil, {}, xdeath(), xdeath("text"), xdeath(table{}, int32(1)), {{Key: "x-death", Value: "text"}}} {
		var r Recorder
		check(t, record(t, &r, died("q", hook.ReasonExpired, "", 5*second, "q"), properties(headers, ""), true), fresh)
		if r.History().Cycle("other") || !r.History().Cycle("q") {
			t.Errorf("%v: wrong history", headers)
		}
	}
}

// A recorder's result does not depend on earlier preparations.
func TestPrepareAgain(t *testing.T) {
	base := died("queue", hook.ReasonExpired, "ex", 5*second, "a", "bc")
	var r Recorder
	for name, change := range map[string]func(d *Death){
		"nothing":            func(*Death) {},
		"queue":              func(d *Death) { d.Queue = "queue2" },
		"reason":             func(d *Death) { d.Reason = hook.ReasonMaxLen },
		"exchange":           func(d *Death) { d.Exchange = nil },
		"second":             func(d *Death) { d.At += second },
		"within the second":  func(d *Death) { d.At += second - 1 },
		"no keys":            func(d *Death) { d.Keys = nil },
		"fewer keys":         func(d *Death) { d.Keys = d.Keys[:1] },
		"more keys":          func(d *Death) { d.Keys = append(d.Keys, nil) },
		"keys cut otherwise": func(d *Death) { d.Keys = [][]byte{[]byte("ab"), []byte("c")} },
		"a longer key":       func(d *Death) { d.Keys = [][]byte{[]byte("a"), []byte("bcd")} },
	} {
		record(t, &r, base, properties(nil, ""), false)
		d := base
		change(&d)
		var fresh Recorder
		if got, want := record(t, &r, d, properties(nil, "9"), false), record(t, &fresh, d, properties(nil, "9"), false); !bytes.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, headersOf(t, got), headersOf(t, want))
		}
	}
}

func TestAppendKeepsWhatIsThere(t *testing.T) {
	var r Recorder
	r.Prepare(died("q", hook.ReasonExpired, "", second, "q"))
	dst := []byte("before")
	out, err := r.Append(dst, properties(nil, ""), false)
	if err != nil || !strings.HasPrefix(string(out), "before") {
		t.Fatalf("%q, %v", out, err)
	}
	if _, err := amqp.ParseProperties(out[6:]); err != nil {
		t.Error(err)
	}
	if out, err = r.Append(dst, []byte{0x20, 0}, false); err == nil || string(out) != "before" {
		t.Errorf("broken properties: %q, %v", out, err)
	}
}

func TestAppendDoesNotAllocate(t *testing.T) {
	var r Recorder
	d := died("queue", hook.ReasonExpired, "ex", 5*second, "key")
	headers := table{{Key: "b", Value: "1"}, {Key: "a", Value: int32(2)}}
	once := record(t, &r, d, properties(headers, "100"), false)
	buf := make([]byte, 0, 4096)
	for name, m := range map[string]struct {
		props    []byte
		recorded bool
	}{
		"no headers": {properties(nil, "100"), false},
		"headers":    {properties(headers, "100"), false},
		"again":      {once, true},
	} {
		cycles := 0
		got := testing.AllocsPerRun(100, func() {
			r.Prepare(d)
			buf, _ = r.Append(buf[:0], m.props, m.recorded)
			if r.History().Cycle("queue") {
				cycles++
			}
		})
		if got > 0 || cycles == 0 {
			t.Errorf("%s: %v allocations, %d cycles", name, got, cycles)
		}
	}
}

func FuzzAppend(f *testing.F) {
	var seeds Recorder
	seeds.Prepare(died("q", hook.ReasonExpired, "e", second, "k"))
	for _, p := range [][]byte{
		properties(nil, ""),
		properties(nil, "1000"),
		properties(table{{Key: "b", Value: "1"}, {Key: "a", Value: "1"}, {Key: "b", Value: nil}}, "+1"),
		properties(table{{Key: "CC", Value: array{"a"}}, {Key: "x-death", Value: array{table{{Key: "count", Value: int64(-1)}}}}}, ""),
	} {
		f.Add(p, "q", "k", false)
		dead, _ := seeds.Append(nil, p, false)
		f.Add(dead, "q", "k", true)
		f.Add(dead, "q2", "k", true)
	}
	f.Fuzz(func(t *testing.T, props []byte, queue, key string, recorded bool) {
		before, err := amqp.ParseProperties(props)
		if err != nil {
			t.Skip()
		}
		var r Recorder
		out := record(t, &r, died(queue, hook.ReasonExpired, "e", 5*second, key), props, recorded)
		after, err := amqp.ParseProperties(out)
		if err != nil {
			t.Fatalf("what came out does not parse: %v", err)
		}
		checkHeaders(t, before.Headers, after.Headers)
		if after.Has(amqp.PropExpiration) {
			t.Error("the expiration is still there")
		}
		if !r.History().Cycle(queue) {
			t.Error("back to where it expired, and no cycle")
		}
		before.Headers, after.Headers, before.Expiration = nil, nil, ""
		before.Flags = before.Flags&^amqp.PropExpiration.Flag() | amqp.PropHeaders.Flag()
		if !reflect.DeepEqual(before, after) {
			t.Errorf("%+v became %+v", before, after)
		}
		for limit := range len(out) {
			if fitted := Fit(out, limit); len(fitted) > len(out) {
				t.Errorf("made to fit %d bytes it has %d, and %d before", limit, len(fitted), len(out))
			} else if _, err := amqp.ParseProperties(fitted); err != nil {
				t.Fatalf("made to fit %d bytes: %v", limit, err)
			}
		}
		again := record(t, &r, died(queue, hook.ReasonExpired, "e", 5*second, key), out, true)
		v, _ := headersOf(t, again).Lookup("x-death")
		newest := v.(array)[0].(table)
		if count, _ := newest.Lookup("count"); !recorded && count != int64(2) {
			t.Errorf("died twice, count %v", count)
		}
	})
}

// checkHeaders checks that the headers are sorted and unique, and that the publisher's other headers are unchanged.
func checkHeaders(t *testing.T, before, after table) {
	t.Helper()
	for i, f := range after {
		if i > 0 && after[i-1].Key >= f.Key {
			t.Errorf("%q before %q", after[i-1].Key, f.Key)
		}
	}
	for _, f := range before {
		if strings.HasPrefix(f.Key, "x-death") || strings.HasPrefix(f.Key, "x-first-death-") || strings.HasPrefix(f.Key, "x-last-death-") {
			continue
		}
		want, _ := before.Lookup(f.Key)
		got, ok := after.Lookup(f.Key)
		if !ok || !bytes.Equal(encoded(got), encoded(want)) {
			t.Errorf("%q: %v became %v", f.Key, want, got)
		}
	}
	for _, key := range []string{"x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason", "x-last-death-exchange", "x-last-death-queue", "x-last-death-reason"} {
		if _, ok := after.Lookup(key); !ok && !strings.HasPrefix(key, "x-first") {
			t.Errorf("no %s", key)
		}
	}
}

func encoded(v any) []byte { return amqp.AppendTable(nil, table{{Value: v}}) }

// A message with the same headers as the previous one gets the same record of its death; one that differs in any way does not.
func TestAppendTellsMessagesApart(t *testing.T) {
	d := died("q", hook.ReasonExpired, "ex", second, "rk")
	var other Recorder
	once := record(t, &other, d, properties(nil, ""), false)
	type message struct {
		death    Death
		props    []byte
		recorded bool
	}
	messages := []message{
		{d, properties(nil, ""), false},
		{d, properties(table{}, ""), false},
		{d, properties(table{{Key: "a", Value: "1"}}, ""), false},
		{d, properties(table{{Key: "a", Value: "2"}}, ""), false},
		{d, properties(table{{Key: "a", Value: "2"}}, "7"), false},
		{d, properties(table{{Key: "a", Value: "2"}}, "8"), false},
		{d, bytes.Replace(properties(table{{Key: "a", Value: "2"}}, "8"), []byte("m1"), []byte("m2"), 1), false},
		{d, once, false},
		{d, once, true},
		{died("q", hook.ReasonRejected, "ex", second, "rk"), once, true},
		{died("p", hook.ReasonRejected, "ex", second, "rk"), once, true},
	}
	var r Recorder
	for i := range messages {
		for j := range messages {
			for _, m := range []message{messages[i], messages[j]} {
				var alone Recorder
				got, want := record(t, &r, m.death, bytes.Clone(m.props), m.recorded), record(t, &alone, m.death, m.props, m.recorded)
				if !bytes.Equal(got, want) || r.History().Cycle("q") != alone.History().Cycle("q") {
					t.Errorf("%d, then %d:\ngot  %x, cycle %v\nwant %x, cycle %v", i, j, got, r.History().Cycle("q"), want, alone.History().Cycle("q"))
				}
			}
		}
	}
}
