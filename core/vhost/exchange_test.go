package vhost

import (
	"errors"
	"strconv"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
)

func TestPredeclaredExchanges(t *testing.T) {
	v, _ := newVHost(t)
	want := map[string]string{
		"": "direct", "amq.direct": "direct", "amq.fanout": "fanout", "amq.topic": "topic",
		"amq.headers": "headers", "amq.match": "headers", "amq.rabbitmq.trace": "topic",
	}
	all := v.Exchanges()
	if len(all) != len(want) {
		t.Fatalf("got %d exchanges, want %d", len(all), len(want))
	}
	for _, x := range all {
		if x.Type != want[x.Name] || !x.Durable || x.AutoDelete || x.Internal != (x.Name == "amq.rabbitmq.trace") {
			t.Errorf("got %+v, want a durable %s exchange", x, want[x.Name])
		}
	}
	must(t, v.DeclareExchange(Exchange{Name: "amq.topic", Type: "topic", Durable: true}, nil))
	must(t, v.CheckExchange("amq.match"))
}

func TestDeclareExchangeRefused(t *testing.T) {
	v, _ := newVHost(t)
	must(t, v.DeclareExchange(Exchange{Name: "plain", Type: "direct"}, nil))
	must(t, v.DeclareExchange(Exchange{Name: "full", Type: "topic", Durable: true, AutoDelete: true, Internal: true, Args: args("alternate-exchange", "plain", "x-odd", int32(1))}, nil))
	tests := []struct {
		name string
		d    Exchange
		kind Kind
		text string
	}{
		{"default", Exchange{Name: "", Type: "direct", Durable: true}, AccessRefused, "operation not permitted on the default exchange"},
		{"default in disguise", Exchange{Name: "\r\n", Type: "direct"}, AccessRefused, "operation not permitted on the default exchange"},
		{"reserved", Exchange{Name: "amq.mine", Type: "direct"}, AccessRefused, "exchange name 'amq.mine' contains reserved prefix 'amq.*'"},
		{"unknown type", Exchange{Name: "x", Type: "x-delayed-message"}, Precondition, "unknown exchange type 'x-delayed-message'"},
		{"unknown type of the default exchange", Exchange{Name: "", Type: "odd"}, Precondition, "unknown exchange type 'odd'"},
		{"alternate of wrong type", Exchange{Name: "x", Type: "direct", Args: args("alternate-exchange", int32(1))}, Precondition, "invalid type 'signedint' for arg 'alternate-exchange' in exchange 'x' in vhost '/'"},
		{"type differs", Exchange{Name: "plain", Type: "fanout"}, Precondition, "inequivalent arg 'type' for exchange 'plain' in vhost '/': received 'fanout' but current is 'direct'"},
		{"durable differs", Exchange{Name: "plain", Type: "direct", Durable: true}, Precondition, "inequivalent arg 'durable' for exchange 'plain' in vhost '/': received 'true' but current is 'false'"},
		{"auto-delete differs", Exchange{Name: "full", Type: "topic", Durable: true}, Precondition, "inequivalent arg 'auto_delete' for exchange 'full' in vhost '/': received 'false' but current is 'true'"},
		{"internal differs", Exchange{Name: "full", Type: "topic", Durable: true, AutoDelete: true}, Precondition, "inequivalent arg 'internal' for exchange 'full' in vhost '/': received 'false' but current is 'true'"},
		{"alternate missing", Exchange{Name: "full", Type: "topic", Durable: true, AutoDelete: true, Internal: true}, Precondition, "inequivalent arg 'alternate-exchange' for exchange 'full' in vhost '/': received none but current is the value 'plain' of type 'longstr'"},
		{"alternate differs", Exchange{Name: "full", Type: "topic", Durable: true, AutoDelete: true, Internal: true, Args: args("alternate-exchange", "other")}, Precondition, "inequivalent arg 'alternate-exchange' for exchange 'full' in vhost '/': received 'other' but current is 'plain'"},
		{"alternate added", Exchange{Name: "plain", Type: "direct", Args: args("alternate-exchange", "other")}, Precondition, "inequivalent arg 'alternate-exchange' for exchange 'plain' in vhost '/': received the value 'other' of type 'longstr' but current is none"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { want(t, v.DeclareExchange(tt.d, nil), tt.kind, tt.text) })
	}
	must(t, v.DeclareExchange(Exchange{Name: "full\n", Type: "topic", Durable: true, AutoDelete: true, Internal: true, Args: args("alternate-exchange", "plain")}, nil))
	want(t, v.CheckExchange("none"), NotFound, "no exchange 'none' in vhost '/'")
	want(t, v.CheckExchange(""), AccessRefused, "operation not permitted on the default exchange")
}

func TestAlternateMustBeAllowed(t *testing.T) {
	v, _ := newVHost(t)
	refused := errors.New("refused")
	asked := ""
	allow := func(alternate string) error { asked = alternate; return refused }
	d := Exchange{Name: "x", Type: "direct", Args: args("alternate-exchange", "other")}
	if err := v.DeclareExchange(d, allow); !errors.Is(err, refused) || asked != "other" {
		t.Fatalf("got %v, asked for %q", err, asked)
	}
	want(t, v.CheckExchange("x"), NotFound, "no exchange 'x' in vhost '/'")
	must(t, v.DeclareExchange(d, nil))
	must(t, v.DeclareExchange(d, allow)) // permission is not asked for an exchange that exists
	must(t, v.DeclareExchange(Exchange{Name: "y", Type: "direct"}, allow))
}

func TestDeleteExchange(t *testing.T) {
	v, _ := newVHost(t)
	declare(t, v, "q")
	exchangeOf(t, v, "x", "direct")
	bind(t, v, "x", "q", "k")
	want(t, v.DeleteExchange("", false), AccessRefused, "operation not permitted on the default exchange")
	want(t, v.DeleteExchange("amq.fanout", false), AccessRefused, "deletion of system exchange 'amq.fanout' in vhost '/' not allowed")
	want(t, v.DeleteExchange("x", true), Precondition, "exchange 'x' in vhost '/' in use")
	must(t, v.DeleteExchange("x\r", false))
	must(t, v.DeleteExchange("x", true))
	want(t, v.CheckExchange("x"), NotFound, "no exchange 'x' in vhost '/'")
	if all := v.Bindings(); len(all) != 0 {
		t.Fatalf("got bindings %v, want none", all)
	}
	exchangeOf(t, v, "x", "direct")
	if got := names(t, v, "x", "k"); got != "" {
		t.Fatalf("a new exchange routes to %s", got)
	}
}

// An auto-delete exchange is deleted with the last binding it is the source of, however that was removed, and so on along the
// chain.
func TestAutoDeleteExchange(t *testing.T) {
	for name, end := range map[string]func(v *VHost) error{
		"unbind": func(v *VHost) error { return v.Unbind(Binding{Source: "c", Destination: "q", Key: "k"}, 0) },
		"queue deleted": func(v *VHost) error {
			_, err := v.DeleteQueue("q", 0, false, false)
			return err
		},
		"exchange deleted": func(v *VHost) error { return v.DeleteExchange("c", false) },
	} {
		t.Run(name, func(t *testing.T) {
			v, _ := newVHost(t)
			declare(t, v, "q")
			for _, x := range []string{"a", "b", "c", "unbound"} {
				must(t, v.DeclareExchange(Exchange{Name: x, Type: "fanout", AutoDelete: true}, nil))
			}
			exchangeOf(t, v, "stays", "fanout")
			bindExchange(t, v, "stays", "c", "")
			bindExchange(t, v, "a", "b", "")
			bindExchange(t, v, "b", "c", "")
			bindExchange(t, v, "a", "a", "") // its own last binding does not keep it
			bind(t, v, "c", "q", "k")
			must(t, v.Unbind(Binding{Source: "a", Destination: "a", ToExchange: true}, 0))
			must(t, end(v))
			for _, x := range []string{"a", "b", "c"} {
				want(t, v.CheckExchange(x), NotFound, "no exchange '"+x+"' in vhost '/'")
			}
			must(t, v.CheckExchange("stays"))
			must(t, v.CheckExchange("unbound"))
			if all := v.Bindings(); len(all) != 0 {
				t.Fatalf("got bindings %v, want none", all)
			}
		})
	}
}

func TestBind(t *testing.T) {
	v, _ := newVHost(t)
	declare(t, v, "q")
	if _, err := v.DeclareQueue(QueueDeclare{Name: "mine", Exclusive: true, Owner: 7}); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		b    Binding
		kind Kind
		text string
	}{
		{"from default", Binding{Source: "", Destination: "q"}, AccessRefused, "operation not permitted on the default exchange"},
		{"to default", Binding{Source: "amq.direct", Destination: "", ToExchange: true}, AccessRefused, "operation not permitted on the default exchange"},
		{"no source", Binding{Source: "none", Destination: "also none"}, NotFound, "no exchange 'none' in vhost '/'"},
		{"no queue", Binding{Source: "amq.direct", Destination: "none"}, NotFound, "no queue 'none' in vhost '/'"},
		{"no exchange", Binding{Source: "amq.direct", Destination: "none", ToExchange: true}, NotFound, "no exchange 'none' in vhost '/'"},
		{"x-match", Binding{Source: "amq.match", Destination: "q", Args: args("x-match", "some")}, Precondition, `Invalid x-match field value <<"some">>; expected all, any, all-with-x, or any-with-x`},
		{"exclusive", Binding{Source: "amq.direct", Destination: "mine"}, Locked, "cannot obtain exclusive access to locked queue 'mine' in vhost '/'. It could be originally declared on another connection or the exclusive property value does not match that of the original declaration."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { want(t, v.Bind(tt.b, 8), tt.kind, tt.text) })
	}
	must(t, v.Bind(Binding{Source: "amq.direct", Destination: "mine"}, 7))
	want(t, v.Unbind(Binding{Source: "amq.direct", Destination: "mine"}, 8), Locked, v.locked("mine").Text)
	must(t, v.Unbind(Binding{Source: "amq.direct", Destination: "mine"}, 7))
	must(t, v.Unbind(Binding{Source: "amq.direct", Destination: "mine"}, 8)) // the binding does not exist, so RabbitMQ does not check the queue's owner
}

func TestBindingIdentity(t *testing.T) {
	v, _ := newVHost(t)
	declare(t, v, "q")
	for range 2 {
		bind(t, v, "amq.direct", "q", "k")
		bind(t, v, "amq.direct", "q", "k", "a", int32(1))
		bind(t, v, "amq.direct\n", "q\r", "k", "a", int32(2))
	}
	if n := len(v.Bindings()); n != 3 {
		t.Fatalf("got %d bindings, want 3", n)
	}
	for i, pairs := range [][]any{{"a", int32(1)}, nil, {"a", int32(2)}, nil, {"never", "was"}} {
		if got := names(t, v, "amq.direct", "k"); got != "q" && i < 3 {
			t.Fatalf("after %d removals: routed to %q, want q once", i, got)
		}
		must(t, v.Unbind(Binding{Source: "amq.direct", Destination: "q", Key: "k", Args: args(pairs...)}, 0))
	}
	if got := names(t, v, "amq.direct", "k"); got != "" {
		t.Fatalf("routed to %q, want nowhere", got)
	}
}

func TestUnbindOfNothing(t *testing.T) {
	v, _ := newVHost(t)
	declare(t, v, "q")
	must(t, v.Unbind(Binding{Source: "none", Destination: "q"}, 0))
	must(t, v.Unbind(Binding{Source: "amq.direct", Destination: "none"}, 0))
	must(t, v.Unbind(Binding{Source: "amq.direct", Destination: "q"}, 0))
	want(t, v.Unbind(Binding{Destination: "q"}, 0), AccessRefused, "operation not permitted on the default exchange")
}

func TestBindingsAreListed(t *testing.T) {
	v, _ := newVHost(t)
	declare(t, v, "q")
	bind(t, v, "amq.headers", "q", "k", "h", "v")
	bindExchange(t, v, "amq.fanout", "amq.topic", "")
	for _, b := range v.Bindings() {
		switch b.Source {
		case "amq.headers":
			if b.Destination != "q" || b.ToExchange || b.Key != "k" || len(b.Args) != 1 || b.Args[0] != (amqp.Field{Key: "h", Value: "v"}) {
				t.Errorf("got %+v", b)
			}
		case "amq.fanout":
			if b.Destination != "amq.topic" || !b.ToExchange {
				t.Errorf("got %+v", b)
			}
		default:
			t.Errorf("got %+v", b)
		}
	}
}

// When an exchange was deleted that many auto-delete exchanges were bound to, each of them was compared with all the others: for some
// thousands the vhost stopped for seconds.
func TestDeletingManyAutoDeleteExchanges(t *testing.T) {
	v, _ := newVHost(t)
	before := len(v.Exchanges())
	must(t, v.DeclareExchange(Exchange{Name: "to", Type: "fanout"}, nil))
	for i := range 20_000 {
		name := "x" + strconv.Itoa(i)
		must(t, v.DeclareExchange(Exchange{Name: name, Type: "fanout", AutoDelete: true}, nil))
		must(t, v.Bind(Binding{Source: name, Destination: "to", ToExchange: true}, 0))
	}
	must(t, v.DeleteExchange("to", false))
	if got := len(v.Exchanges()); got != before {
		t.Errorf("%d exchanges are left, want %d", got, before)
	}
}
