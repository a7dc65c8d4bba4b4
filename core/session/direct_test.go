package session

import (
	"context"
	"errors"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/clock"
)

func testDirect(tb testing.TB, user auth.User) *Direct {
	tb.Helper()
	s := testServer(tb)
	v, ok := s.VHosts("/")
	if !ok {
		tb.Fatal("vhost / is missing")
	}
	d := s.Direct(user, v, clock.New())
	tb.Cleanup(d.Close)
	return d
}

func call[T amqp.Method](tb testing.TB, d *Direct, m amqp.Method) (T, Reply) {
	tb.Helper()
	r, err := d.Call(context.WithoutCancel(tb.Context()), m)
	if err != nil {
		tb.Fatalf("%s: %v", m.Name(), err)
	}
	got, ok := r.Method.(T)
	if !ok {
		tb.Fatalf("%s: answered by %s", m.Name(), r.Method.Name())
	}
	return got, r
}

// A message is published with a confirm, fetched, requeued and fetched again.
func TestDirect(t *testing.T) {
	d := testDirect(t, auth.User{Name: auth.Guest})
	call[*amqp.QueueDeclareOK](t, d, &amqp.QueueDeclare{Queue: "q", Durable: true})
	call[*amqp.ConfirmSelectOK](t, d, &amqp.ConfirmSelect{})
	props := amqp.Properties{ContentType: "text/plain"}
	props.Set(amqp.PropContentType)
	for _, body := range []string{"first", "", string(make([]byte, 3<<20))} {
		d.Publish(&amqp.BasicPublish{RoutingKey: "q", Mandatory: true}, props.Append(nil), []byte(body))
		r, err := d.Next(t.Context())
		if _, ok := r.Method.(*amqp.BasicAck); err != nil || !ok {
			t.Fatalf("publish: got %v, %v, want basic.ack", r.Method, err)
		}
		got, r := call[*amqp.BasicGetOK](t, d, &amqp.BasicGet{Queue: "q"})
		if string(r.Body) != body || string(r.Props) != string(props.Append(nil)) {
			t.Errorf("got %d bytes, want %d", len(r.Body), len(body))
		}
		d.Send(&amqp.BasicNack{DeliveryTag: got.DeliveryTag, Requeue: true})
		if got, _ = call[*amqp.BasicGetOK](t, d, &amqp.BasicGet{Queue: "q", NoAck: true}); !got.Redelivered {
			t.Error("it came out again as if for the first time")
		}
	}
	call[*amqp.BasicGetEmpty](t, d, &amqp.BasicGet{Queue: "q"})
}

func TestDirectReturn(t *testing.T) {
	d := testDirect(t, auth.User{Name: auth.Guest})
	call[*amqp.ConfirmSelectOK](t, d, &amqp.ConfirmSelect{})
	d.Publish(&amqp.BasicPublish{RoutingKey: "nowhere", Mandatory: true}, amqp.Properties{}.Append(nil), []byte("x"))
	r, err := d.Next(t.Context())
	if _, ok := r.Method.(*amqp.BasicReturn); err != nil || !ok || string(r.Body) != "x" {
		t.Fatalf("got %v, %v, want basic.return", r, err)
	}
	if r, err = d.Next(t.Context()); err != nil || r.Method.Name() != "basic.ack" {
		t.Errorf("got %v, %v, want basic.ack", r.Method, err)
	}
}

// A Direct is refused the same requests as a client, with the same texts.
func TestDirectRefused(t *testing.T) {
	for _, tt := range []struct {
		name string
		user auth.User
		m    amqp.Method
		want string
	}{
		{"no queue", auth.User{Name: auth.Guest}, &amqp.QueuePurge{Queue: "q"}, "NOT_FOUND - no queue 'q' in vhost '/'"},
		{"no permission", auth.User{Name: "stranger"}, &amqp.QueueDeclare{Queue: "q"}, "ACCESS_REFUSED - configure access to queue 'q' in vhost '/' refused for user 'stranger'"},
		{"hard error", auth.User{Name: auth.Guest}, &amqp.ChannelFlow{}, "NOT_IMPLEMENTED - active=false"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := testDirect(t, tt.user).Call(t.Context(), tt.m)
			if e, ok := errors.AsType[*amqp.Error](err); !ok || e.Error() != tt.want {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

// Next waits no longer than its context allows.
func TestDirectPatience(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := testDirect(t, auth.User{Name: auth.Guest}).Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the end of the context", err)
	}
}
