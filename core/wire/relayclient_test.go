package wire

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/wlog"
)

// overTCP has the front of a pair reach the owner over loopback, in TLS if secure is not nil, and both listen for clients.
func overTCP(tb testing.TB, secure, trust *tls.Config, change ...func(*Options)) *pair {
	tb.Helper()
	p := newPair(tb, func(_ wlog.NodeID, o *Options) {
		o.AMQP, o.HandshakeTimeout = "127.0.0.1:0", time.Minute
		for _, f := range change {
			f(o)
		}
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	var accepting sync.WaitGroup
	tb.Cleanup(accepting.Wait)
	tb.Cleanup(func() { l.Close() })
	accepting.Go(func() {
		for {
			stream, err := l.Accept()
			if err != nil {
				return
			}
			p.owner.Adopt(stream, frontNode)
		}
	})
	p.front.options.Dial = func(ctx context.Context, _ wlog.NodeID) (net.Conn, error) {
		if trust != nil {
			d := tls.Dialer{Config: trust}
			return d.DialContext(ctx, "tcp", l.Addr().String())
		}
		var d net.Dialer
		return d.DialContext(ctx, "tcp", l.Addr().String())
	}
	for _, s := range []*Server{p.front, p.owner} {
		if err := s.Start(tb.Context()); err != nil {
			tb.Fatal(err)
		}
	}
	return p
}

// transcript records what a client has received.
type transcript struct {
	t     *testing.T
	lines []string
}

func (r *transcript) note(layout string, args ...any) {
	r.lines = append(r.lines, fmt.Sprintf(layout, args...))
}

// must ends the test for an error.
func (r *transcript) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// receive returns the next value, which must come.
func receive[T any](r *transcript, c <-chan T) T {
	r.t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(30 * time.Second):
		r.t.Fatalf("no %T has come", *new(T))
		panic("not reached")
	}
}

// converse does with a broker what clients do, and returns the results.
func converse(t *testing.T, s *Server, throttle func(on bool)) []string {
	t.Helper()
	r := &transcript{t: t}
	uri := "amqp://guest:guest@" + s.Addresses()[0].String() + "/"
	conn, err := amqp091.DialConfig(uri, amqp091.Config{Heartbeat: time.Second, Vhost: "/"})
	r.must(err)
	defer conn.Close()
	blocked := conn.NotifyBlocked(make(chan amqp091.Blocking, 2))
	ch, err := conn.Channel()
	r.must(err)
	r.confirms(ch)
	r.transactions(conn)
	r.cancels(conn)
	r.channelError(conn)
	throttle(true)
	r.must(ch.Publish("", "nowhere", false, false, amqp091.Publishing{Body: []byte("x")}))
	r.note("blocked: %+v", receive(r, blocked))
	throttle(false)
	r.note("unblocked: %+v", receive(r, blocked))
	r.must(conn.Close())
	r.connectionError(uri)
	return r.lines
}

// confirms publishes messages of many sizes, and consumes them.
func (r *transcript) confirms(ch *amqp091.Channel) {
	r.must(ch.Confirm(false))
	q, err := ch.QueueDeclare("q", false, false, false, false, nil)
	r.must(err)
	r.note("declared %+v", q)
	returned := ch.NotifyReturn(make(chan amqp091.Return, 1))
	lost, err := ch.PublishWithDeferredConfirm("", "nobody", true, false, amqp091.Publishing{Body: []byte("back")})
	r.must(err)
	r.note("confirmed %v, returned %+v", lost.Wait(), receive(r, returned))
	sizes := []int{0, 1, 4096, 131072 - 8, 131072 - 7, 300_000, 5 << 20}
	for _, size := range sizes {
		c, err := ch.PublishWithDeferredConfirm("", "q", false, false, amqp091.Publishing{Body: pattern(size), MessageId: strconv.Itoa(size)})
		r.must(err)
		r.note("%d bytes confirmed: %v", size, c.Wait())
	}
	r.must(ch.Qos(2, 0, false))
	deliveries, err := ch.Consume("q", "c", false, false, false, false, nil)
	r.must(err)
	for range sizes {
		d := receive(r, deliveries)
		r.note("got %s, as published: %v, tag %d", d.MessageId, bytes.Equal(d.Body, pattern(len(d.Body))), d.DeliveryTag)
		r.must(d.Ack(false))
	}
	r.must(ch.Cancel("c", false))
	d, ok, err := ch.Get("q", true)
	r.must(err)
	r.note("left: %v %s", ok, d.Body)
}

func pattern(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i * 7)
	}
	return b
}

func (r *transcript) transactions(conn *amqp091.Connection) {
	ch, err := conn.Channel()
	r.must(err)
	r.must(ch.Tx())
	for i, end := range []func() error{ch.TxRollback, ch.TxCommit} {
		r.must(ch.Publish("", "q", false, false, amqp091.Publishing{Body: []byte{byte('a' + i)}}))
		r.must(end())
		d, ok, err := ch.Get("q", false)
		r.must(err)
		r.note("after transaction %d: %v %s", i, ok, d.Body)
	}
	r.must(ch.TxRollback())
	r.must(ch.Close())
}

// cancels deletes a queue that is consumed.
func (r *transcript) cancels(conn *amqp091.Connection) {
	ch, err := conn.Channel()
	r.must(err)
	_, err = ch.Consume("q", "doomed", false, false, false, false, nil)
	r.must(err)
	cancelled := ch.NotifyCancel(make(chan string, 1))
	n, err := ch.QueueDelete("q", false, false, false)
	r.must(err)
	r.note("deleted with %d messages, cancelled %s", n, receive(r, cancelled))
}

func (r *transcript) channelError(conn *amqp091.Connection) {
	ch, err := conn.Channel()
	r.must(err)
	_, err = ch.QueueDeclarePassive("nothing", false, false, false, false, nil)
	r.note("channel error: %v", err)
}

func (r *transcript) connectionError(uri string) {
	conn, err := amqp091.Dial(uri)
	r.must(err)
	closed := conn.NotifyClose(make(chan *amqp091.Error, 1))
	ch, err := conn.Channel()
	r.must(err)
	r.must(ch.ExchangeDeclare("x", "fanout", false, false, false, false, nil))
	r.must(ch.Publish("x", strings.Repeat("k", 255), false, true, amqp091.Publishing{})) // immediate, which nobody implements
	r.note("connection error: %v", receive(r, closed))
}

// A client sees no difference between a broker that serves it and one that relays it, over plain TCP and over TLS between the nodes.
func TestRelayedAsDirect(t *testing.T) {
	a := newAuthority(t)
	secure, err := LoadCertificates(a.server("broker"))
	if err != nil {
		t.Fatal(err)
	}
	links := map[string]*pair{
		"plain": overTCP(t, nil, nil),
		"TLS":   overTCP(t, secure.Config(), a.client("")),
	}
	direct := overTCP(t, nil, nil)
	throttle := func(p *pair) func(bool) {
		return func(on bool) { p.owner.SetMemoryLimit(map[bool]int64{true: 0, false: -1}[on]) }
	}
	want := converse(t, direct.owner, throttle(direct))
	for name, p := range links {
		t.Run(name, func(t *testing.T) {
			got := converse(t, p.front, throttle(p))
			for i := range max(len(got), len(want)) {
				if i >= len(got) || i >= len(want) || got[i] != want[i] {
					t.Errorf("relayed %q\n direct %q", got[min(i, len(got)):], want[min(i, len(want)):])
					break
				}
			}
			if p.front.RelayTotals().Begun != 2 {
				t.Errorf("relayed %+v, want two connections", p.front.RelayTotals())
			}
		})
	}
}

// The owner lists the encryption and the certificate of the client's connection, not those of the link between the nodes.
func TestRelayedSecurity(t *testing.T) {
	a := newAuthority(t)
	secure, err := LoadCertificates(a.server("broker"))
	if err != nil {
		t.Fatal(err)
	}
	p := overTCP(t, secure.Config(), a.client("node"), func(o *Options) {
		o.AMQPS, o.TLS = "127.0.0.1:0", a.server("broker")
		o.TLS.CA = a.path("ca.pem")
	})
	plain := connect(t, p.front.Addresses()[0]).open(0)
	if state, ok := p.owner.OpenConns()[0].TLS(); ok {
		t.Errorf("a client without TLS is listed with %+v", state)
	}
	plain.close()
	c := dialTLS(t, p.front, a.client("app")).open(0)
	all := p.owner.OpenConns()
	i := slices.IndexFunc(all, func(o OpenConn) bool { return o.Peer.TLS })
	if i < 0 {
		t.Fatalf("listed: %+v", all)
	}
	state, ok := all[i].TLS()
	if !ok || state.Version != tls.VersionTLS13 || len(state.PeerCertificates) != 1 || state.PeerCertificates[0].Subject.CommonName != "app" {
		t.Errorf("listed with %v %+v", ok, state)
	}
	c.close()
}

// A client that half-closes its socket behind connection.close still gets the answer.
func TestRelayedHalfClose(t *testing.T) {
	p := overTCP(t, nil, nil)
	c := connect(t, p.front.Addresses()[0]).open(0)
	c.send(0, &amqp.ConnectionClose{ReplyCode: 200})
	if err := c.socket.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	expectMethod[*amqp.ConnectionCloseOK](c)
	c.ended()
}
