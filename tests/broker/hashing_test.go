package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// spread is a broker with the exchanges of types x-consistent-hash, x-modulus-hash and x-random of an export of RabbitMQ 3.10.8: each
// leads to q1 to q4.
type spread struct {
	*process.Process

	t  *testing.T
	ch *amqp091.Channel
}

var spreadQueues = []string{"q1", "q2", "q3", "q4"}

func startSpread(t *testing.T, dir string) *spread {
	t.Helper()
	b := process.Start(t, "data: {dir: "+dir+"}")
	conn, err := process.Dial(b.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	return &spread{b, t, ch}
}

// place publishes n messages and returns where each went.
func (s *spread) place(exchange string, n int, message message) []string {
	s.t.Helper()
	return s.placeIn(spreadQueues, exchange, n, message)
}

// message returns the routing key and the properties of a message.
type message func(i int) (key string, p amqp091.Publishing)

func (s *spread) placeIn(queues []string, exchange string, n int, message message) []string {
	s.t.Helper()
	for i := range n {
		key, p := message(i)
		p.Body = fmt.Append(nil, i)
		confirm, err := s.ch.PublishWithDeferredConfirm(exchange, key, false, false, p)
		if err != nil {
			s.t.Fatal(err)
		}
		if i == n-1 && !confirm.Wait() {
			s.t.Fatal("refused")
		}
	}
	to := make([]string, n)
	for _, q := range queues {
		for {
			m, ok, err := s.ch.Get(q, true)
			if err != nil {
				s.t.Fatal(err)
			}
			if !ok {
				break
			}
			var i int
			if _, err := fmt.Sscan(string(m.Body), &i); err != nil || to[i] != "" {
				s.t.Fatalf("message %q went to %q and to %s", m.Body, to[i], q)
			}
			to[i] = q
		}
	}
	if i := slices.Index(to, ""); i >= 0 {
		s.t.Fatalf("message %d to exchange %s went nowhere", i, exchange)
	}
	return to
}

func byKey(i int) (string, amqp091.Publishing) {
	return fmt.Sprint("customer ", i), amqp091.Publishing{}
}

func byCustomer(i int) (string, amqp091.Publishing) {
	return "", amqp091.Publishing{Headers: amqp091.Table{"customer": int32(i)}}
}

// wantShares fails unless each queue got its share of the messages, within a quarter.
func wantShares(t *testing.T, exchange string, to []string, shares map[string]int) {
	t.Helper()
	got, all := map[string]int{}, 0
	for _, q := range to {
		got[q]++
	}
	for _, share := range shares {
		all += share
	}
	for _, q := range slices.Sorted(maps.Keys(shares)) {
		if want := len(to) * shares[q] / all; got[q] < want*3/4 || got[q] > want*5/4 {
			t.Errorf("%s: %s got %d of %d messages, want about %d", exchange, q, got[q], len(to), want)
		}
	}
}

// An export of RabbitMQ's is taken over with its exchanges of other types, and exported as it was. Messages are spread by weight, go
// where they went after a restart, and only those of a deleted queue go elsewhere.
func TestHashingExchanges(t *testing.T) {
	t.Parallel()
	export, err := os.ReadFile("testdata/hash-exchanges.json")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "data")
	b := startSpread(t, dir)
	b.Ask(t, 204, "POST", "definitions/%2F", json.RawMessage(export))
	sameDefinitions(t, export, b.Ask(t, 200, "GET", "definitions/%2F", nil))
	var overview struct {
		Types []struct{ Name string } `json:"exchange_types"`
	}
	if err := json.Unmarshal(b.Ask(t, 200, "GET", "overview", nil), &overview); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"x-consistent-hash", "x-modulus-hash", "x-random"} {
		if !strings.Contains(fmt.Sprint(overview.Types), name) {
			t.Errorf("%s is not among the exchange types of the overview: %v", name, overview.Types)
		}
	}

	const n = 2000
	even, weighted := map[string]int{"q1": 1, "q2": 1, "q3": 1, "q4": 1}, map[string]int{"q1": 1, "q2": 1, "q3": 2, "q4": 2}
	keys, customers, shards := b.place("spread", n, byKey), b.place("by-customer", n, byCustomer), b.place("shards", n, byKey)
	wantShares(t, "spread", keys, weighted)
	wantShares(t, "by-customer", customers, even)
	wantShares(t, "shards", shards, even)
	wantShares(t, "any", b.place("any", n, func(int) (string, amqp091.Publishing) { return "the same", amqp091.Publishing{} }), even)
	wantShares(t, "by-message, through any", b.place("by-message", n, byCustomer), even)

	b.Stop()
	b = startSpread(t, dir)
	for exchange, before := range map[string][]string{"spread": keys, "shards": shards} {
		if !slices.Equal(b.place(exchange, n, byKey), before) {
			t.Errorf("after a restart, messages to %s go elsewhere", exchange)
		}
	}
	if !slices.Equal(b.place("by-customer", n, byCustomer), customers) {
		t.Error("after a restart, messages to by-customer go elsewhere")
	}
	if _, err := b.ch.QueueDelete("q2", false, false, false); err != nil {
		t.Fatal(err)
	}
	for i, q := range b.placeIn([]string{"q1", "q3", "q4"}, "spread", n, byKey) {
		if q != keys[i] && keys[i] != "q2" {
			t.Fatalf("q2 was deleted, and message %d goes to %s instead of %s", i, q, keys[i])
		}
	}
}

// sameDefinitions compares exchanges and bindings.
func sameDefinitions(t *testing.T, want, got []byte) {
	t.Helper()
	type definitions struct{ Exchanges, Bindings []map[string]any }
	var w, g definitions
	if err := errors.Join(json.Unmarshal(want, &w), json.Unmarshal(got, &g)); err != nil {
		t.Fatal(err)
	}
	lines := func(all []map[string]any) string {
		var lines []string
		for _, d := range all {
			lines = append(lines, fmt.Sprint(d))
		}
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	for _, pair := range [][2][]map[string]any{{w.Exchanges, g.Exchanges}, {w.Bindings, g.Bindings}} {
		if lines(pair[0]) != lines(pair[1]) {
			t.Errorf("exported:\n%s\nwant what was imported:\n%s", lines(pair[1]), lines(pair[0]))
		}
	}
}

// The texts are RabbitMQ 3.10's, except where it closes the connection or dies.
func TestHashingExchangeErrors(t *testing.T) {
	t.Parallel()
	b := process.Start(t, "")
	conn, err := process.Dial(b.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	refused := func(want string, try func(ch *amqp091.Channel) error) {
		t.Helper()
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		err = try(ch)
		var closed *amqp091.Error
		if !errors.As(err, &closed) || closed.Code != 406 || closed.Reason != "PRECONDITION_FAILED - "+want {
			t.Errorf("got %v, want 406 %s", err, want)
		}
	}
	declare := func(args amqp091.Table) func(ch *amqp091.Channel) error {
		return func(ch *amqp091.Channel) error {
			return ch.ExchangeDeclare("x", "x-consistent-hash", false, false, false, false, args)
		}
	}
	bind := func(key string) func(ch *amqp091.Channel) error {
		return func(ch *amqp091.Channel) error {
			_, err := ch.QueueDeclare("q", false, false, false, false, nil)
			return errors.Join(err, ch.QueueBind("q", key, "h", false, nil))
		}
	}
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	for _, hashOn := range []any{"a", "b"} { // RabbitMQ compares no argument of these exchanges
		if err := ch.ExchangeDeclare("h", "x-consistent-hash", false, false, false, false, amqp091.Table{"hash-header": hashOn}); err != nil {
			t.Fatal(err)
		}
	}
	refused("Unsupported property: user_id", declare(amqp091.Table{"hash-property": "user_id"}))
	refused("hash-header and hash-property are mutually exclusive", declare(amqp091.Table{"hash-property": "timestamp", "hash-header": "h"}))
	refused("invalid type 'signedint' for arg 'hash-header' in exchange 'x' in vhost '/': expected longstr", declare(amqp091.Table{"hash-header": int32(5)}))
	refused(`The binding key must be an integer: <<"a\"b">>`, bind(`a"b`))
	refused("The binding key must be an integer: <<>>", bind(""))
	refused("The binding key must be greater than 0", bind("0"))
	refused(`The binding key must be an integer from 1 to 2147483647: <<"18446744073709551616">>`, bind("18446744073709551616"))
	if err := bind("2147483647")(ch); err != nil {
		t.Error(err)
	}
}
