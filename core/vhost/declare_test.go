package vhost

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

func TestDeclareQueueRefused(t *testing.T) {
	const q = " for queue 'q' in vhost '/'"
	tests := []struct {
		name string
		d    QueueDeclare
		kind Kind
		text string
	}{
		{"reserved name", QueueDeclare{Name: "amq.x"}, AccessRefused, "queue name 'amq.x' contains reserved prefix 'amq.*'"},
		{"long name", QueueDeclare{Name: strings.Repeat("q", 256)}, Precondition, "queue name of 256 bytes: at most 255 are allowed"},
		{"plugin's integer", QueueDeclare{Args: args("x-message-ttl", "10")}, Precondition, "invalid arg 'x-message-ttl'" + q + `: "expected integer, got longstr"`},
		{"plugin's range", QueueDeclare{Args: args("x-expires", int64(0))}, Precondition, "invalid arg 'x-expires'" + q + ": {value_zero,0}"},
		{"plugin's type", QueueDeclare{Args: args("x-dead-letter-exchange", int32(1))}, Precondition, "invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue 'q' in vhost '/'"},
		{"priority negative", QueueDeclare{Args: args("x-max-priority", int8(-1))}, Precondition, "invalid arg 'x-max-priority'" + q + ": {value_negative,-1}"},
		{"priority too high", QueueDeclare{Args: args("x-max-priority", int32(256))}, Precondition, "invalid arg 'x-max-priority'" + q + ": {max_value_exceeded,256}"},
		{"priority not a number", QueueDeclare{Args: args("x-max-priority", 2.5)}, Precondition, "invalid arg 'x-max-priority'" + q + `: "expected integer, got double"`},
		{"single active consumer", QueueDeclare{Args: args("x-single-active-consumer", "true")}, Precondition, "invalid arg 'x-single-active-consumer'" + q + ": {unacceptable_type,longstr}"},
		{"queue mode", QueueDeclare{Args: args("x-queue-mode", "eager")}, Precondition, "invalid arg 'x-queue-mode'" + q + `: "unsupported queue mode 'eager'"`},
		{"queue mode's type", QueueDeclare{Args: args("x-queue-mode", true)}, Precondition, "invalid arg 'x-queue-mode'" + q + ": {unacceptable_type,bool}"},
		{"queue version", QueueDeclare{Args: args("x-queue-version", int32(3))}, Precondition, "invalid arg 'x-queue-version'" + q + `: "unsupported queue version '3'"`},
		{"consumer timeout", QueueDeclare{Args: args("x-consumer-timeout", int32(-1))}, Precondition, "invalid arg 'x-consumer-timeout'" + q + ": {value_negative,-1}"},
		{"leader locator", QueueDeclare{Args: args("x-queue-leader-locator", "here")}, Precondition, "invalid arg 'x-queue-leader-locator'" + q + ": invalid_queue_locator_arg"},
		{"name prefix too long", QueueDeclare{Args: args("x-name-prefix", strings.Repeat("p", 65))}, Precondition, "invalid arg 'x-name-prefix'" + q + `: "expected 1 to 64 bytes, got 65"`},
		{"name prefix reserved", QueueDeclare{Args: args("x-name-prefix", "amq.gen")}, Precondition, "invalid arg 'x-name-prefix'" + q + `: "the prefix 'amq.' is reserved"`},
		{"unknown type", QueueDeclare{Args: args("x-queue-type", "odd")}, Precondition, "invalid arg 'x-queue-type'" + q + `: "unsupported queue type 'odd'"`},
		{"the first of two in RabbitMQ's order", QueueDeclare{Args: args("x-single-active-consumer", int32(1), "x-overflow", "burst", "x-message-ttl", "1")}, Precondition, "invalid arg 'x-message-ttl'" + q + `: "expected integer, got longstr"`},
		{"the type before others", QueueDeclare{Args: args("x-message-ttl", "1", "x-queue-type", "odd")}, Precondition, "invalid arg 'x-queue-type'" + q + `: "unsupported queue type 'odd'"`},
		{"type's type", QueueDeclare{Args: args("x-queue-type", int32(1))}, Precondition, "invalid arg 'x-queue-type'" + q + ": {unacceptable_type,signedint}"},
		{"quorum's argument", QueueDeclare{Args: args("x-delivery-limit", int32(1))}, Precondition, "invalid arg 'x-delivery-limit'" + q + " of queue type rabbit_classic_queue"},
		{"plugin's quorum argument", QueueDeclare{Args: args("x-dead-letter-strategy", "odd")}, Precondition, "invalid arg 'x-dead-letter-strategy'" + q + " of queue type rabbit_classic_queue"},
		{"stream's argument", QueueDeclare{Args: args("x-max-age", "1D")}, Precondition, "invalid arg 'x-max-age'" + q + " of queue type rabbit_classic_queue"},
		{"classic's argument", QueueDeclare{Durable: true, Args: args("x-queue-type", "quorum", "x-max-priority", int32(1))}, Precondition, "invalid arg 'x-max-priority'" + q + " of queue type rabbit_quorum_queue"},
		{"delivery limit", QueueDeclare{Durable: true, Args: args("x-queue-type", "quorum", "x-delivery-limit", "1")}, Precondition, "invalid arg 'x-delivery-limit'" + q + `: "expected integer, got longstr"`},
		{"transient quorum", QueueDeclare{Args: args("x-queue-type", "quorum")}, Precondition, "invalid property 'non-durable'" + q},
		{"exclusive quorum", QueueDeclare{Durable: true, Exclusive: true, Args: args("x-queue-type", "quorum")}, Precondition, "invalid property 'exclusive-owner'" + q},
		{"auto-delete quorum", QueueDeclare{Durable: true, AutoDelete: true, Args: args("x-queue-type", "quorum")}, Precondition, "invalid property 'auto-delete'" + q},
		{"stream", QueueDeclare{Durable: true, Args: args("x-queue-type", "stream", "x-max-length-bytes", int32(1))}, NotImplemented, "queue 'q' in vhost '/': queue type 'stream' is not offered, only 'classic' and 'quorum'"},
		{"stream with a TTL", QueueDeclare{Durable: true, Args: args("x-queue-type", "stream", "x-message-ttl", int32(1))}, Precondition, "invalid arg 'x-message-ttl'" + q + " of queue type rabbit_stream_queue"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, _ := newVHost(t)
			if tt.d.Name == "" {
				tt.d.Name = "q"
			}
			_, err := v.DeclareQueue(tt.d)
			want(t, err, tt.kind, tt.text)
			if len(v.Queues()) != 0 {
				t.Fatal("the queue exists all the same")
			}
		})
	}
}

func TestDeclareQueueConfig(t *testing.T) {
	tests := []struct {
		name string
		d    QueueDeclare
		want queue.Config
	}{
		{"plain", QueueDeclare{}, queue.Config{Profile: &queue.Profile{Kind: "classic", DeliveryLimit: -1}}},
		{"an exclusive queue is not durable", QueueDeclare{Durable: true, Exclusive: true, AutoDelete: true, Owner: 1}, queue.Config{Profile: &queue.Profile{Kind: "classic", DeliveryLimit: -1}, Exclusive: true, AutoDelete: true}},
		{"arguments", QueueDeclare{Durable: true, Args: args("x-max-priority", uint8(255), "x-single-active-consumer", true, "x-unknown", amqp.Table{})}, queue.Config{Profile: &queue.Profile{Kind: "classic", Levels: 255, SingleActive: true, DeliveryLimit: -1}, Durable: true}},
		{"first of two counts", QueueDeclare{Args: args("x-max-priority", int32(1), "x-max-priority", int32(1_000_000))}, queue.Config{Profile: &queue.Profile{Kind: "classic", Levels: 1, DeliveryLimit: -1}}},
		{"quorum", QueueDeclare{Durable: true, Args: args("x-queue-type", "quorum")}, queue.Config{Profile: &queue.Profile{Kind: "quorum", DeliveryLimit: 20}, Durable: true}},
		{"delivery limit", QueueDeclare{Durable: true, Args: args("x-queue-type", "quorum", "x-delivery-limit", int32(3))}, queue.Config{Profile: &queue.Profile{Kind: "quorum", DeliveryLimit: 3}, Durable: true}},
		{"no delivery limit", QueueDeclare{Durable: true, Args: args("x-queue-type", "quorum", "x-delivery-limit", int64(-1))}, queue.Config{Profile: &queue.Profile{Kind: "quorum", DeliveryLimit: -1}, Durable: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, _ := newVHost(t)
			tt.d.Name = "q\r\n"
			d, err := v.DeclareQueue(tt.d)
			must(t, err)
			c := *d.Mailbox.Config()
			if c.Name != "q" || c.VHost != "/" || len(c.Args) != len(tt.d.Args) {
				t.Errorf("got name %q, vhost %q, arguments %v", c.Name, c.VHost, c.Args)
			}
			if c.Kind != tt.want.Kind || c.Durable != tt.want.Durable || c.Exclusive != tt.want.Exclusive || c.AutoDelete != tt.want.AutoDelete ||
				c.SingleActive != tt.want.SingleActive || c.Levels != tt.want.Levels || c.DeliveryLimit != tt.want.DeliveryLimit {
				t.Errorf("got %+v, want %+v", c, tt.want)
			}
		})
	}
}

func TestSettings(t *testing.T) {
	v, _ := newVHost(t)
	c := declare(t, v, "q", "x-message-ttl", int32(5), "odd", "value").Config()
	if n, ok := c.Settings("message-ttl"); !ok || n != int32(5) {
		t.Errorf("got %v, %v", n, ok)
	}
	for _, name := range []string{"odd", "d", "", "x-message-ttl", "expires"} {
		if got, ok := c.Settings(name); ok {
			t.Errorf("setting %q is %v", name, got)
		}
	}
}

func TestEqualArgumentsAreShared(t *testing.T) {
	v, _ := newVHost(t)
	a, b := declare(t, v, "a", "x-expires", int32(5)).Config(), declare(t, v, "b", "x-expires", int32(5)).Config()
	if &a.Args[0] != &b.Args[0] {
		t.Error("each has its own")
	}
	for i := range int32(3 * maxProfiles) {
		declare(t, v, strconv.Itoa(int(i)), "x-odd", i)
	}
	if n := len(v.policyTable.profiles); n == 0 || n > maxProfiles {
		t.Errorf("%d profiles are remembered", n)
	}
	clear(v.policyTable.profiles)
	declare(t, v, "c", "x-odd", strings.Repeat("long", 1000))
	if n := len(v.policyTable.profiles); n != 0 {
		t.Error("long arguments are remembered")
	}
}

func TestStrategy(t *testing.T) {
	v, _ := newVHost(t)
	for _, tt := range []struct {
		chosen any
		want   string
	}{{nil, "usual"}, {"other", "other"}} {
		d := QueueDeclare{Name: "q " + tt.want}
		if tt.chosen != nil {
			d.Args = args("x-expiry-strategy", tt.chosen)
		}
		q, err := v.DeclareQueue(d)
		must(t, err)
		if got := q.Mailbox.Config().Strategy; got != tt.want {
			t.Errorf("chose %v: got %s, want %s", tt.chosen, got, tt.want)
		}
	}
}

func TestAcceptedArguments(t *testing.T) {
	for _, a := range []amqp.Table{
		args("x-queue-version", uint8(1)), args("x-queue-version", int64(2)), args("x-queue-mode", "lazy"),
		args("x-queue-master-locator", "min-masters"), args("x-queue-leader-locator", "balanced"), args("x-max-priority", int32(0)),
		args("x-single-active-consumer", false), args("x-consumer-timeout", int32(0)), args("x-anything", amqp.Array{nil, amqp.Table{}}),
	} {
		v, _ := newVHost(t)
		for range 2 { // the second is a redeclaration
			if _, err := v.DeclareQueue(QueueDeclare{Name: "q", Args: a}); err != nil {
				t.Errorf("%v: %v", a, err)
			}
		}
	}
}

func TestEqualValues(t *testing.T) {
	tests := []struct {
		a, b any
		want bool
	}{
		{int8(1), uint32(1), true},
		{int32(1), int32(2), false},
		{int32(1), "1", false},
		{float32(0.5), 0.5, true},
		{0.5, 0.25, false},
		{0.5, int32(1), false},
		{amqp.Decimal{Scale: 1, Value: 5}, amqp.Decimal{Scale: 1, Value: 5}, true},
		{amqp.Decimal{Scale: 1, Value: 5}, amqp.Decimal{Scale: 2, Value: 5}, false},
		{[]byte("a"), []byte("a"), true},
		{[]byte("a"), "a", false},
		{nil, nil, true},
		{nil, false, false},
		{amqp.Table{{Key: "k", Value: amqp.Array{int8(1)}}}, amqp.Table{{Key: "k", Value: amqp.Array{int8(1)}}}, true},
		{amqp.Array{"a"}, amqp.Array{"b"}, false},
	}
	for _, tt := range tests {
		if got := sameValue(tt.a, tt.b); got != tt.want {
			t.Errorf("%T %v and %T %v: got %v", tt.a, tt.a, tt.b, tt.b, got)
		}
		if got := sameValue(tt.b, tt.a); got != tt.want {
			t.Errorf("%T %v and %T %v: got %v", tt.b, tt.b, tt.a, tt.a, got)
		}
	}
}

func TestTerms(t *testing.T) {
	for _, tt := range []struct {
		v    any
		want string
	}{
		{"text", "text"},
		{[]byte("text"), "text"},
		{true, "true"},
		{int8(-1), "-1"},
		{nil, "undefined"},
		{10.0, "10.0"},
		{float32(0.5), "0.5"},
		{1e300, "1e+300"},
		{amqp.Decimal{Scale: 2, Value: 100}, "{2,100}"},
		{amqp.Timestamp(7), "7"},
		{amqp.Array{}, "[...]"},
		{strings.Repeat("é", 200), strings.Repeat("é", 100) + "..."},
		{"x" + strings.Repeat("é", 200), "x" + strings.Repeat("é", 99) + "..."},
	} {
		if got := term(tt.v); got != tt.want {
			t.Errorf("%T: got %s, want %s", tt.v, got, tt.want)
		}
	}
}

func TestRedeclare(t *testing.T) {
	const q = " for queue 'q' in vhost '/': "
	base := func(pairs ...any) QueueDeclare { return QueueDeclare{Name: "q", Durable: true, Args: args(pairs...)} }
	tests := []struct {
		name          string
		first, second QueueDeclare
		text          string // empty: they are equivalent
	}{
		{"same", base("x-message-ttl", int32(10)), base("x-message-ttl", int32(10)), ""},
		{"integers of any type", base("x-message-ttl", int8(10)), base("x-message-ttl", int64(10)), ""},
		{"a short and a long", base("x-message-ttl", int16(10)), base("x-message-ttl", uint32(10)), ""},
		{"an integer and a float", base("x-message-ttl", int32(10)), base("x-message-ttl", 10.0), "inequivalent arg 'x-message-ttl'" + q + "received '10.0' but current is '10'"},
		{"a string and an integer", base("x-message-ttl", int32(10)), base("x-message-ttl", "10"), "inequivalent arg 'x-message-ttl'" + q + "received '10' but current is '10'"},
		{"values differ", base("x-message-ttl", int32(10)), base("x-message-ttl", int32(20)), "inequivalent arg 'x-message-ttl'" + q + "received '20' but current is '10'"},
		{"added", base(), base("x-message-ttl", int32(20_000)), "inequivalent arg 'x-message-ttl'" + q + "received the value '20000' of type 'signedint' but current is none"},
		{"left out", base("x-expires", int64(1_800_000)), base(), "inequivalent arg 'x-expires'" + q + "received none but current is the value '1800000' of type 'long'"},
		{"strings differ", base("x-dead-letter-exchange", "a"), base("x-dead-letter-exchange", "b"), "inequivalent arg 'x-dead-letter-exchange'" + q + "received 'b' but current is 'a'"},
		{"booleans differ", base("x-single-active-consumer", true), base("x-single-active-consumer", false), "inequivalent arg 'x-single-active-consumer'" + q + "received 'false' but current is 'true'"},
		{"a table", base("x-message-ttl", int32(1)), base("x-message-ttl", amqp.Table{}), "inequivalent arg 'x-message-ttl'" + q + "received '[...]' but current is '1'"},
		{"void", base("x-message-ttl", int32(1)), base("x-message-ttl", nil), "inequivalent arg 'x-message-ttl'" + q + "received 'undefined' but current is '1'"},
		{"unknown arguments", base("x-odd", int32(1)), base("x-other", int32(2)), ""},
		{"arguments of other types", base(), base("x-delivery-limit", int32(2)), ""},
		{"durable", base(), QueueDeclare{Name: "q"}, "inequivalent arg 'durable'" + q + "received 'false' but current is 'true'"},
		{"auto-delete", base(), QueueDeclare{Name: "q", Durable: true, AutoDelete: true}, "inequivalent arg 'auto_delete'" + q + "received 'true' but current is 'false'"},
		{"durable comes before arguments", base("x-message-ttl", int32(5)), QueueDeclare{Name: "q"}, "inequivalent arg 'durable'" + q + "received 'false' but current is 'true'"},
		{"classic is the default", base(), base("x-queue-type", "classic"), ""},
		{"and the other way round", base("x-queue-type", "classic"), base(), ""},
		{"another type", base(), base("x-queue-type", "quorum"), "inequivalent arg 'x-queue-type'" + q + "received the value 'quorum' of type 'longstr' but current is none"},
		{"two types", base("x-queue-type", "quorum"), base("x-queue-type", "classic"), "inequivalent arg 'x-queue-type'" + q + "received 'classic' but current is 'quorum'"},
		{"quorum left out", base("x-queue-type", "quorum"), base(), "inequivalent arg 'x-queue-type'" + q + "received none but current is the value 'quorum' of type 'longstr'"},
		{"the first of two in RabbitMQ's order", base("x-message-ttl", int32(1)), base("x-max-priority", int32(1), "x-expires", int32(1)), "inequivalent arg 'x-expires'" + q + "received the value '1' of type 'signedint' but current is none"},
		{"the type after others", base("x-message-ttl", int32(1)), base("x-queue-type", "quorum"), "inequivalent arg 'x-message-ttl'" + q + "received none but current is the value '1' of type 'signedint'"},
		{"a value that is shortened", base("x-dead-letter-exchange", "a"), base("x-dead-letter-exchange", strings.Repeat("b", 500)), "inequivalent arg 'x-dead-letter-exchange'" + q + "received '" + strings.Repeat("b", 200) + "...' but current is 'a'"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, _ := newVHost(t)
			first, err := v.DeclareQueue(tt.first)
			must(t, err)
			second, err := v.DeclareQueue(tt.second)
			if tt.text != "" {
				want(t, err, Precondition, tt.text)
				return
			}
			must(t, err)
			if second.Mailbox != first.Mailbox {
				t.Error("it is another queue")
			}
		})
	}
}

func TestDeclaredCounts(t *testing.T) {
	v, _ := newVHost(t)
	s := declare(t, v, "q")
	publish(s, text("a"), text("b"))
	must(t, s.Do(func(q *queue.Queue, now hook.Instant) {
		_ = q.AddConsumer(now, &queue.Consumer{Queue: s, Sink: full{}, Prefetch: 1})
	}))
	d, err := v.DeclareQueue(QueueDeclare{Name: "q", Durable: true})
	must(t, err)
	if d.Messages != 2 || d.Consumers != 1 {
		t.Errorf("declared: got %d messages, %d consumers", d.Messages, d.Consumers)
	}
	d, err = v.CheckQueue("q\n", 0, false)
	must(t, err)
	if d.Messages != 2 || d.Consumers != 1 || d.Mailbox != s {
		t.Errorf("checked: got %d messages, %d consumers", d.Messages, d.Consumers)
	}
	_, err = v.CheckQueue("none\r", 0, false)
	want(t, err, NotFound, "no queue 'none' in vhost '/'")
}

// full is a sink without credit.
type full struct{}

func (full) Deliver(hook.Instant, *queue.Consumer, []queue.Delivery) int { return 0 }
func (full) Capacity(*queue.Consumer) (int, int)                         { return 0, 0 }
func (full) Takes(*queue.Consumer, *queue.Delivery) bool                 { return true }
func (full) Cancelled(*queue.Consumer)                                   {}
func (full) Stopped(*queue.Consumer, *queue.StoppedError)                {}

func TestServerNames(t *testing.T) {
	v, _ := newVHost(t)
	for _, tt := range []struct {
		args  amqp.Table
		shape string
	}{
		{nil, `^amq\.gen-[A-Za-z0-9_-]{22}$`},
		{args("x-name-prefix", "orders.reply"), `^orders\.reply-[A-Za-z0-9_-]{22}$`},
	} {
		seen := map[string]bool{}
		for range 100 {
			d, err := v.DeclareQueue(QueueDeclare{Args: tt.args})
			must(t, err)
			name := d.Mailbox.Config().Name
			if !regexp.MustCompile(tt.shape).MatchString(name) || seen[name] {
				t.Fatalf("got name %q", name)
			}
			seen[name] = true
		}
	}
	for _, kind := range []string{"quorum", "stream"} {
		_, err := v.DeclareQueue(QueueDeclare{Durable: true, Args: args("x-queue-type", kind)})
		want(t, err, Precondition, "Cannot declare a server-named queue for type rabbit_"+kind+"_queue")
	}
	_, err := v.DeclareQueue(QueueDeclare{Args: args("x-name-prefix", int32(1))})
	if e, ok := errors.AsType[*Error](err); !ok || !strings.HasSuffix(e.Text, ": {unacceptable_type,signedint}") {
		t.Fatalf("got %v", err)
	}
}

func TestDeadLetterExchangeMustBeAllowed(t *testing.T) {
	v, _ := newVHost(t)
	refused := errors.New("refused")
	asked := ""
	d := QueueDeclare{Name: "q", Args: args("x-dead-letter-exchange", "dlx"), Allow: func(x string) error { asked = x; return refused }}
	if _, err := v.DeclareQueue(d); !errors.Is(err, refused) || asked != "dlx" {
		t.Fatalf("got %v, asked for %q", err, asked)
	}
	_, err := v.CheckQueue("q", 0, false)
	want(t, err, NotFound, "no queue 'q' in vhost '/'")
	allow := d.Allow
	d.Allow = nil
	if _, err := v.DeclareQueue(d); err != nil {
		t.Fatal(err)
	}
	d.Allow = allow
	if _, err := v.DeclareQueue(d); err != nil {
		t.Fatalf("an existing queue: %v", err)
	}
	if _, err := v.DeclareQueue(QueueDeclare{Name: "other", Allow: allow}); err != nil {
		t.Fatalf("without a dead-letter exchange: %v", err)
	}
}
