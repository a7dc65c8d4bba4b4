package bench

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/core/amqp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeBroker is a small broker for a synctest bubble. It has queues with consumers, confirms, TTL, dead-lettering and leases; each of the
// last three is late by a configured time. Connections are pipes.
type fakeBroker struct {
	mu     sync.Mutex // guards everything below, and is never held while waiting
	queues map[string]*fakeQueue
	bound  map[string][][2]string // by exchange: queues and their binding keys
	acked  int                    // deliveries acknowledged, multiple ones counted
	reject int                    // deliveries rejected
	asked  []string               // of the management API
	broken bool                   // which answers 503
	refuse int                    // publishes to be nacked instead of queued
	lose   int                    // publishes to be confirmed but not queued
	jam    int                    // publishes after which a publisher's connection is blocked and read no more; 0 = never

	late     time.Duration // of expiry and of the end of leases
	lag      time.Duration // of the answer to a passive declaration
	password string

	peers []*fakePeer // ever connected
	down  bool        // nobody can connect

	tls     *tls.Config // nil = connections are in the clear
	relayed *pipes      // clients are connected with each other instead; nil = they are not
}

// pipes is a listener whose connections are pipes.
type pipes struct {
	net.Listener
	arrived chan net.Conn
}

func (p *pipes) Accept() (net.Conn, error) { return <-p.arrived, nil }

func (b *fakeBroker) relay() *relay {
	b.relayed = &pipes{arrived: make(chan net.Conn, 2)}
	done := make(chan error, 1)
	go func() { done <- passOn(b.relayed) }()
	return &relay{pid: 42, stop: func() error { return <-done }}
}

type fakeQueue struct {
	args      amqp.Table
	ready     []*fakeMessage
	consumers []*fakePeer
	lease     *time.Timer
}

type fakeMessage struct{ body []byte }

type delivery struct {
	queue   *fakeQueue
	message *fakeMessage
}

// fakePeer is one connection. Its reading goroutine owns the fields without a lock; another goroutine sends out.
type fakePeer struct {
	b        *fakeBroker
	nc       net.Conn
	out      chan []byte
	confirms bool
	seq      uint64 // of the latest publish
	tag      uint64 // of the latest delivery; guarded by b.mu
	unacked  uint64 // lowest unacknowledged tag; guarded by b.mu
	under    map[uint64]delivery
	publish  *amqp.BasicPublish
	header   []byte
	body     []byte
	left     int
	gone     bool // guarded by b.mu
}

func newFakeBroker() *fakeBroker {
	return &fakeBroker{queues: make(map[string]*fakeQueue), bound: make(map[string][][2]string), password: "guest"}
}

// env returns an environment in which every address leads to b, and process 42 is b's process.
func (b *fakeBroker) env(t *testing.T) (e *env, stdout, stderr *bytes.Buffer) {
	t.Helper()
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	proc := filepath.Join(t.TempDir(), "42")
	if err := os.Mkdir(proc, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"stat": statLine, "status": statusText} {
		if err := os.WriteFile(filepath.Join(proc, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &env{
		dial:   func(context.Context, string) (net.Conn, error) { return b.connect() },
		http:   b.serve,
		relay:  func() (*relay, error) { return b.relay(), nil },
		pace:   func() (pacer, error) { return bubblePacer{}, nil },
		proc:   filepath.Dir(proc),
		stdout: stdout,
		stderr: stderr,
	}, stdout, stderr
}

// serve is the management API: lists of held messages, and redrives from the dead-letter queue to queue 0.
func (b *fakeBroker) serve(r *http.Request) (*http.Response, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	parts := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/api/"), "/")
	b.asked = append(b.asked, r.Method+" "+strings.Join(parts[3:], "/")+"?"+r.URL.RawQuery)
	answer := "[]"
	switch {
	case b.broken:
		return &http.Response{StatusCode: 503, Status: "503 Service Unavailable", Body: io.NopCloser(strings.NewReader("later"))}, nil
	case r.URL.RawQuery != "":
		answer = `{"items":[{"id":"6"},{"id":"7"},{"id":"8"}],"item_count":3,"total_count":3,"next":null,"complete":true}`
	case parts[3] == "redrive":
		answer = `{"id":"1"}`
		dead := b.queues[parts[2]]
		home := b.queues[strings.TrimSuffix(parts[2], "dead")+"0"]
		for _, m := range dead.ready {
			b.enqueue(home, m, -1)
		}
		dead.ready = nil
	}
	return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(answer))}, nil
}

// bubblePacer sleeps on the bubble's clock.
type bubblePacer struct{}

func (bubblePacer) sleep(d time.Duration) error { time.Sleep(d); return nil }
func (bubblePacer) Close() error                { return nil }

func (b *fakeBroker) connect() (net.Conn, error) {
	ours, theirs := net.Pipe()
	if b.relayed != nil {
		b.relayed.arrived <- ours
		return theirs, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.down {
		return nil, errors.New("connection refused")
	}
	p := &fakePeer{b: b, nc: ours, out: make(chan []byte, 1<<16), unacked: 1, under: make(map[uint64]delivery)}
	if b.tls != nil {
		p.nc = tls.Server(ours, b.tls)
	}
	b.peers = append(b.peers, p)
	go p.write()
	go p.read()
	return theirs, nil
}

// fail ends all connections, and refuses new ones for a time.
func (b *fakeBroker) fail(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.peers {
		_ = p.nc.Close()
	}
	b.down = true
	time.AfterFunc(d, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.down = false
	})
}

func (p *fakePeer) write() {
	for buf := range p.out {
		if _, err := p.nc.Write(buf); err != nil {
			continue
		}
	}
}

func (p *fakePeer) read() {
	defer p.leave()
	hello := make([]byte, len(amqp.ProtocolHeader))
	if _, err := io.ReadFull(p.nc, hello); err != nil || string(hello) != amqp.ProtocolHeader {
		return
	}
	p.send(0, &amqp.ConnectionStart{Mechanisms: "PLAIN", Locales: "en_US"})
	var buf []byte
	chunk := make([]byte, 1<<16)
	for {
		n, err := p.nc.Read(chunk)
		if err != nil {
			return
		}
		buf = append(buf, chunk[:n]...)
		for {
			f, n, err := amqp.NextFrame(buf, frameMax)
			if err != nil {
				panic(err)
			}
			if n == 0 {
				break
			}
			p.frame(f)
			buf = buf[n:]
		}
	}
}

func (p *fakePeer) leave() {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	p.gone = true
	for _, q := range p.b.queues {
		for i, c := range q.consumers {
			if c == p {
				q.consumers = append(q.consumers[:i:i], q.consumers[i+1:]...)
				break
			}
		}
	}
	close(p.out)
	_ = p.nc.Close()
}

func (p *fakePeer) send(ch uint16, m amqp.Method) { p.out <- amqp.AppendMethod(nil, ch, m) }

func (p *fakePeer) frame(f amqp.Frame) {
	switch f.Type {
	case amqp.FrameMethod:
		m, err := amqp.ParseMethod(f.Payload)
		if err != nil {
			panic(err)
		}
		p.b.mu.Lock()
		defer p.b.mu.Unlock()
		p.method(m)
	case amqp.FrameHeader:
		h, err := amqp.ParseContentHeader(f.Payload)
		if err != nil {
			panic(err)
		}
		p.header, p.body, p.left = bytes.Clone(h.Props), nil, int(h.BodySize)
		p.content()
	case amqp.FrameBody:
		p.body = append(p.body, f.Payload...)
		p.left -= len(f.Payload)
		p.content()
	}
}

func (p *fakePeer) method(m amqp.Method) {
	switch m := m.(type) {
	case *amqp.ConnectionStartOK:
		if m.Response != "\x00guest\x00"+p.b.password {
			p.send(0, &amqp.ConnectionClose{ReplyCode: amqp.ReplyAccessRefused, ReplyText: "ACCESS_REFUSED - Login was refused"})
			return
		}
		p.send(0, &amqp.ConnectionTune{ChannelMax: 2047, FrameMax: amqp.FrameMinSize, Heartbeat: 60})
	case *amqp.ConnectionOpen:
		p.send(0, &amqp.ConnectionOpenOK{})
	case *amqp.ConnectionClose:
		p.send(0, &amqp.ConnectionCloseOK{})
	case *amqp.ChannelOpen:
		p.send(channel, &amqp.ChannelOpenOK{})
	case *amqp.ConfirmSelect:
		p.confirms = true
		p.send(channel, &amqp.ConfirmSelectOK{})
	case *amqp.QueueDeclare:
		p.declare(m)
	case *amqp.QueueDelete:
		delete(p.b.queues, m.Queue)
		p.send(channel, &amqp.QueueDeleteOK{})
	case *amqp.BasicQos:
		p.send(channel, &amqp.BasicQosOK{})
	case *amqp.BasicConsume:
		q := p.b.queues[m.Queue]
		q.consumers = append(q.consumers, p)
		p.send(channel, &amqp.BasicConsumeOK{ConsumerTag: m.ConsumerTag})
		q.deliver()
	case *amqp.BasicAck:
		p.ack(m)
	case *amqp.BasicReject:
		p.b.reject++
		d := p.under[m.DeliveryTag]
		p.b.die(d.queue, d.message)
	case *amqp.ExchangeDeclare:
		p.b.bound[m.Exchange] = nil
		p.send(channel, &amqp.ExchangeDeclareOK{})
	case *amqp.ExchangeDelete:
		delete(p.b.bound, m.Exchange)
		p.send(channel, &amqp.ExchangeDeleteOK{})
	case *amqp.QueueBind:
		p.b.bound[m.Exchange] = append(p.b.bound[m.Exchange], [2]string{m.Queue, m.RoutingKey})
		p.send(channel, &amqp.QueueBindOK{})
	case *amqp.BasicPublish:
		p.publish = m
	}
}

func (p *fakePeer) declare(m *amqp.QueueDeclare) {
	q := p.b.queues[m.Queue]
	if q == nil && m.Passive {
		p.send(channel, &amqp.ChannelClose{ReplyCode: amqp.ReplyNotFound, ReplyText: "NOT_FOUND - no queue '" + m.Queue + "' in vhost '/'"})
		return
	}
	if q == nil {
		q = &fakeQueue{args: m.Arguments}
		p.b.queues[m.Queue] = q
	}
	if ms, ok := q.args.Lookup("x-expires"); ok {
		q.lease = time.AfterFunc(time.Duration(ms.(int64))*time.Millisecond+p.b.late, func() {
			p.b.mu.Lock()
			defer p.b.mu.Unlock()
			delete(p.b.queues, m.Queue)
		})
	}
	answer := &amqp.QueueDeclareOK{Queue: m.Queue, MessageCount: uint32(len(q.ready)), ConsumerCount: uint32(len(q.consumers))}
	if !m.Passive || p.b.lag == 0 {
		p.send(channel, answer)
		return
	}
	time.AfterFunc(p.b.lag, func() {
		p.b.mu.Lock()
		defer p.b.mu.Unlock()
		if !p.gone {
			p.send(channel, answer)
		}
	})
}

func (p *fakePeer) ack(m *amqp.BasicAck) {
	if !m.Multiple {
		p.b.acked++
		return
	}
	p.b.acked += int(m.DeliveryTag + 1 - p.unacked)
	p.unacked = m.DeliveryTag + 1
}

// content completes a publish when its body is complete.
func (p *fakePeer) content() {
	if p.left > 0 {
		return
	}
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	p.seq++
	q := p.b.queues[p.publish.RoutingKey]
	if q == nil && p.publish.Mandatory {
		buf := amqp.AppendMethod(nil, channel, &amqp.BasicReturn{ReplyCode: amqp.ReplyNoRoute, ReplyText: "NO_ROUTE", RoutingKey: p.publish.RoutingKey})
		buf = amqp.AppendContentHeader(buf, channel, uint64(len(p.body)), p.header)
		p.out <- amqp.AppendBody(buf, channel, p.body, amqp.FrameMinSize)
	}
	if p.b.jam > 0 && p.seq == uint64(p.b.jam) {
		p.send(0, &amqp.ConnectionBlocked{Reason: "low on memory"})
		p.b.mu.Unlock()
		time.Sleep(time.Hour)
		p.b.mu.Lock()
	}
	if p.b.refuse > 0 {
		p.b.refuse--
		p.send(channel, &amqp.BasicNack{DeliveryTag: p.seq})
		return
	}
	if p.confirms {
		p.send(channel, &amqp.BasicAck{DeliveryTag: p.seq})
	}
	if p.b.lose > 0 {
		p.b.lose--
		return
	}
	if wait := p.waits(); wait > 0 {
		p.b.hold(p.publish, p.body, wait+p.b.late)
		return
	}
	all := p.b.bound[p.publish.Exchange]
	if strings.Contains(p.publish.Exchange, "x-consistent-hash") {
		i := len(p.publish.RoutingKey) % len(all)
		all = [][2]string{{all[i][0], p.publish.RoutingKey}}
	}
	for _, bound := range all {
		if matches(bound[1], p.publish.RoutingKey) {
			p.b.enqueue(p.b.queues[bound[0]], &fakeMessage{body: p.body}, -1)
		}
	}
	if q != nil {
		p.b.enqueue(q, &fakeMessage{body: p.body}, p.lifetime(q))
	}
}

// waits returns how long the message is held.
func (p *fakePeer) waits() time.Duration {
	props, err := amqp.ParseProperties(p.header)
	if err != nil {
		panic(err)
	}
	for _, header := range []string{"x-delay", "x-deliver-after"} {
		if ms, ok := props.Headers.Lookup(header); ok {
			return time.Duration(ms.(int64)) * time.Millisecond
		}
	}
	return 0
}

// hold routes a message, after wait, to the queue that its routing key names.
func (b *fakeBroker) hold(m *amqp.BasicPublish, body []byte, wait time.Duration) {
	time.AfterFunc(wait, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if q := b.queues[m.RoutingKey]; q != nil {
			b.enqueue(q, &fakeMessage{body: body}, -1)
		}
	})
}

// lifetime returns the lower TTL in milliseconds; -1 = none.
func (p *fakePeer) lifetime(q *fakeQueue) int64 {
	props, err := amqp.ParseProperties(p.header)
	if err != nil {
		panic(err)
	}
	ttl := int64(-1)
	if v, ok := q.args.Lookup("x-message-ttl"); ok {
		ttl = v.(int64)
	}
	if props.Has(amqp.PropExpiration) {
		ms, err := strconv.ParseInt(props.Expiration, 10, 64)
		if err != nil {
			panic(err)
		}
		if ttl < 0 || ms < ttl {
			ttl = ms
		}
	}
	return ttl
}

func (b *fakeBroker) enqueue(q *fakeQueue, m *fakeMessage, ttl int64) {
	q.ready = append(q.ready, m)
	q.deliver()
	if ttl >= 0 {
		time.AfterFunc(time.Duration(ttl)*time.Millisecond+b.late, func() { b.expire(q, m) })
	}
}

func (b *fakeBroker) expire(q *fakeQueue, m *fakeMessage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range q.ready {
		if q.ready[i] != m {
			continue
		}
		q.ready = append(q.ready[:i:i], q.ready[i+1:]...)
		b.die(q, m)
		return
	}
}

func (b *fakeBroker) die(q *fakeQueue, m *fakeMessage) {
	name, ok := q.args.Lookup("x-dead-letter-routing-key")
	if !ok || b.queues[name.(string)] == nil {
		return
	}
	dead := b.queues[name.(string)]
	ttl := int64(-1)
	if v, ok := dead.args.Lookup("x-message-ttl"); ok {
		ttl = v.(int64)
	}
	b.enqueue(dead, m, ttl)
}

// matches implements the matching of topic exchanges as far as these tests need it. A pattern without wildcards matches the same key.
func matches(pattern, key string) bool {
	words, given := strings.Split(pattern, "."), strings.Split(key, ".")
	for i, w := range words {
		if w == "#" {
			return true
		}
		if i >= len(given) || (w != "*" && w != given[i]) {
			return false
		}
	}
	return len(words) == len(given)
}

func (q *fakeQueue) deliver() {
	if len(q.consumers) == 0 {
		return
	}
	for _, m := range q.ready {
		p := q.consumers[0]
		p.tag++
		p.under[p.tag] = delivery{q, m}
		buf := amqp.AppendDeliver(nil, channel, "c", p.tag, false, nil, []byte("key"))
		buf = amqp.AppendContentHeader(buf, channel, uint64(len(m.body)), []byte{0, 0})
		p.out <- amqp.AppendBody(buf, channel, m.body, amqp.FrameMinSize)
	}
	q.ready = nil
}

func (b *fakeBroker) left() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var names []string
	for name := range b.bound {
		names = append(names, "exchange "+name)
	}
	for name, q := range b.queues {
		names = append(names, fmt.Sprintf("%s (%d messages)", name, len(q.ready)))
	}
	return names
}
