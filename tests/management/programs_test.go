package management

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/tests/process"
)

var (
	programs  = flag.Int("programs", 12, "how many random programs are run against both brokers")
	firstSeed = flag.Uint64("seed", 1, "the seed of the first of them")
	otherAMQP = flag.String("rabbitmq", "", "the AMQP address of a RabbitMQ that runs, instead of one that is started")
)

// A program is random things that three clients' channels do to a few queues. After each of them it is waited until nothing moves,
// and what the clients heard, and what is in the queues, is the same with our broker as with Debian's RabbitMQ.
func TestProgramsWithRabbitMQ(t *testing.T) {
	other := *otherAMQP
	if other == "" {
		other = rabbitmq(t).amqp
	}
	ours := curfew(t).amqp
	for seed := *firstSeed; seed < *firstSeed+uint64(*programs); seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			differs := ""
			for range 3 { // RabbitMQ's queues race with each other: what differs by chance does not always
				if differs = difference(playProgram(t, ours, seed), playProgram(t, other, seed)); differs == "" {
					return
				}
			}
			t.Error(differs)
		})
	}
}

// difference shows the first step that is not the same, and those before it.
func difference(got, want []string) string {
	for i := range want {
		if got[i] != want[i] {
			return fmt.Sprintf("step %d: got\n%s\nRabbitMQ has\n%s\nafter\n%s", i, got[i], want[i], strings.Join(want[max(0, i-40):i], ""))
		}
	}
	return ""
}

const programSteps = 60

// playProgram plays the program with that seed, and returns what was seen of each of its steps.
func playProgram(t *testing.T, address string, seed uint64) (seen []string) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 11))
	p := &programPlayer{t: t, address: address, prefix: fmt.Sprintf("programs.%d.", seed), quorum: rng.IntN(12) == 0}
	for _, name := range []string{"A", "B", "observer"} {
		p.clients = append(p.clients, &programClient{player: p, name: name})
	}
	defer p.end()
	p.tidy()
	for range programSteps {
		s := programStep{channel: rng.IntN(3)}
		for s.verb == "" {
			s.verb = drawVerb(rng)
		}
		for i := range s.n {
			s.n[i] = rng.IntN(1 << 20)
		}
		seen = append(seen, p.step(s))
	}
	return seen
}

// verbs are what a program does, and how often.
var verbs = []struct {
	weight int
	verb   string
}{
	{14, "publish"},
	{4, "fan"},
	{10, "consume"},
	{3, "cancel"},
	{8, "qos"},
	{8, "get"},
	{16, "ack"},
	{6, "nack"},
	{4, "reject"},
	{2, "recover"},
	{5, "declare"},
	{3, "delete"},
	{2, "purge"},
	{2, "bind"},
	{1, "unbind"},
	{4, "select"},
	{7, "commit"},
	{4, "rollback"},
	{2, "confirm"},
	{2, "close"},
	{1, "disconnect"},
	{3, "beat"},
	{1, "misbeat"},
}

func drawVerb(rng *rand.Rand) string {
	n := rng.IntN(120)
	for _, v := range verbs {
		if n -= v.weight; n < 0 {
			return v.verb
		}
	}
	return ""
}

// programStep is one command. Its numbers are chosen before it is known what they choose from.
type programStep struct {
	verb    string
	channel int // of three: two of client A, one of client B
	n       [4]int
}

type programPlayer struct {
	t       *testing.T
	address string
	prefix  string // of names
	quorum  bool   // the last queue is one
	clients []*programClient
	last    int // message
	heard   int // counts what the clients hear
}

// end closes the connections.
func (p *programPlayer) end() {
	p.tidy()
	for _, c := range p.clients {
		c.hangUp()
	}
}

func (p *programPlayer) queue(n int) string { return p.prefix + "q" + strconv.Itoa(n%3) }
func (p *programPlayer) exchange() string   { return p.prefix + "x" }
func (p *programPlayer) observer() *programChannel {
	return p.clients[2].channel(1)
}

// tidy leaves nothing but a new exchange.
func (p *programPlayer) tidy() {
	p.t.Helper()
	for _, c := range p.clients[:2] {
		c.hangUp()
	}
	for n := range 3 {
		p.observer().call(&amqp.QueueDelete{Queue: p.queue(n)})
	}
	p.observer().call(&amqp.ExchangeDelete{Exchange: p.exchange()})
	p.observer().call(&amqp.ExchangeDeclare{Exchange: p.exchange(), Type: "fanout"})
}

// step carries one out and returns what there was to see.
func (p *programPlayer) step(s programStep) string {
	p.t.Helper()
	client, id := p.clients[s.channel/2], uint16(1+s.channel%2)
	ch := client.channel(id)
	var text strings.Builder
	fmt.Fprintf(&text, "%s%d %s\n", client.name, id, ch.do(s))
	p.settle()
	for _, c := range p.clients[:2] {
		text.WriteString(c.report())
	}
	for n := range 3 {
		m := p.observer().call(&amqp.QueueDeclare{Queue: p.queue(n), Passive: true})
		if ok, is := m.(*amqp.QueueDeclareOK); is {
			fmt.Fprintf(&text, "    q%d: %d messages, %d consumers\n", n, ok.MessageCount, ok.ConsumerCount)
		}
	}
	return strings.ReplaceAll(text.String(), p.prefix, "")
}

// settle waits until nothing moves: every channel and every queue was asked twice, and nothing was heard meanwhile.
func (p *programPlayer) settle() {
	p.t.Helper()
	for quiet := 0; quiet < 2; quiet++ {
		before := p.heard
		for _, c := range p.clients[:2] {
			c.eachOpen(func(ch *programChannel) { ch.call(&amqp.ExchangeDeclare{Exchange: "amq.direct", Passive: true}) })
		}
		for n := range 3 {
			p.observer().call(&amqp.QueueDeclare{Queue: p.queue(n), Passive: true})
		}
		time.Sleep(2 * time.Millisecond)
		if p.heard != before {
			quiet = -1
		}
	}
}

// programClient is a connection, which is opened when it is needed.
type programClient struct {
	player   *programPlayer
	name     string
	conn     net.Conn
	events   chan programEvent // closed when the connection ends
	channels [3]*programChannel
	said     []string // about the connection
}

// programEvent is a method that a client heard, with its content.
type programEvent struct {
	channel uint16
	method  amqp.Method
	body    string
}

func (c *programClient) send(channel uint16, ms ...amqp.Method) {
	var b []byte
	for _, m := range ms {
		b = amqp.AppendMethod(b, channel, m)
	}
	c.write(b)
}

func (c *programClient) write(b []byte) {
	if c.conn != nil {
		_, _ = c.conn.Write(b) // when it fails the broker has closed the connection, which is heard
	}
}

// channel returns an open channel.
func (c *programClient) channel(id uint16) *programChannel {
	c.player.t.Helper()
	if c.conn == nil {
		c.connect()
	}
	if c.channels[id] == nil {
		c.channels[id] = &programChannel{client: c, id: id, noAck: map[string]bool{}}
		c.channels[id].call(&amqp.ChannelOpen{})
	}
	return c.channels[id]
}

func (c *programClient) connect() {
	t := c.player.t
	t.Helper()
	conn, err := net.Dial("tcp", c.player.address)
	if err != nil {
		t.Fatal(err)
	}
	c.conn, c.events = conn, make(chan programEvent, 10_000)
	go readEvents(conn, c.events)
	c.write([]byte(amqp.ProtocolHeader))
	c.await(0, func(amqp.Method) bool { return true })
	var can amqp.Table
	for _, name := range []string{"consumer_cancel_notify", "basic.nack", "publisher_confirms"} {
		can = append(can, amqp.Field{Key: name, Value: true})
	}
	c.send(0, &amqp.ConnectionStartOK{
		ClientProperties: amqp.Table{{Key: "capabilities", Value: can}}, Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US",
	})
	c.await(0, func(amqp.Method) bool { return true })
	c.send(0, &amqp.ConnectionTuneOK{ChannelMax: 10, FrameMax: 131072, Heartbeat: 600}, &amqp.ConnectionOpen{VirtualHost: "/"})
	c.await(0, func(amqp.Method) bool { return true })
}

// readEvents reads until the connection ends. Heartbeats are no events.
func readEvents(conn net.Conn, to chan<- programEvent) {
	defer close(to)
	var in []byte
	open := map[uint16]*programEvent{} // waits for its content
	missing := map[uint16]int{}
	part := make([]byte, 64<<10)
	for {
		n, err := conn.Read(part)
		in = append(in, part[:n]...)
		for {
			f, n, _ := amqp.NextFrame(in, 1<<20)
			if n == 0 {
				break
			}
			in = in[n:]
			switch f.Type {
			case amqp.FrameMethod:
				m, _ := amqp.ParseMethod(f.Payload)
				open[f.Channel] = &programEvent{channel: f.Channel, method: m}
				switch m.(type) {
				case *amqp.BasicDeliver, *amqp.BasicGetOK, *amqp.BasicReturn:
					continue
				}
			case amqp.FrameHeader:
				h, _ := amqp.ParseContentHeader(f.Payload)
				missing[f.Channel] = int(h.BodySize)
			case amqp.FrameBody:
				missing[f.Channel] -= len(f.Payload)
				open[f.Channel].body += string(f.Payload)
			default:
				continue
			}
			if e := open[f.Channel]; missing[f.Channel] == 0 {
				delete(open, f.Channel)
				to <- *e
			}
		}
		if err != nil {
			return
		}
	}
}

// await takes what is heard until an answer on a channel. It returns nil if there will be none.
func (c *programClient) await(channel uint16, answers func(amqp.Method) bool) amqp.Method {
	c.player.t.Helper()
	for {
		e, open, inTime := process.Receive(c.events)
		switch {
		case !inTime:
			c.player.t.Fatalf("%s: no answer on channel %d", c.name, channel)
		case !open:
			c.hangUp()
			return nil
		case e.channel == channel && answers(e.method):
			return e.method
		case !c.hear(e):
			return nil
		case e.channel == channel && channel > 0 && c.channels[channel] == nil:
			return nil
		}
	}
}

// hear takes note of what the broker says unasked. It returns false when that is the end of the connection.
func (c *programClient) hear(e programEvent) bool {
	if c != c.player.clients[2] {
		c.player.heard++
	}
	if m, ok := e.method.(*amqp.ConnectionClose); ok {
		c.said = append(c.said, fmt.Sprintf("connection closed: %d %s", m.ReplyCode, m.ReplyText))
		c.send(0, &amqp.ConnectionCloseOK{})
		c.hangUp()
		return false
	}
	if ch := c.channels[min(int(e.channel), len(c.channels)-1)]; ch != nil {
		ch.hear(e)
	}
	return true
}

// hangUp ends the connection. What the channels heard is forgotten: how far it came is chance.
func (c *programClient) hangUp() {
	if c.conn == nil {
		return
	}
	_ = c.conn.Close() // in any case
	for range c.events {
	}
	c.conn, c.channels = nil, [3]*programChannel{}
}

func (c *programClient) eachOpen(fn func(ch *programChannel)) {
	for _, ch := range c.channels {
		if ch != nil && c.conn != nil {
			fn(ch)
		}
	}
}

// report returns what was heard since it was last called.
func (c *programClient) report() string {
	var b strings.Builder
	for _, line := range c.said {
		fmt.Fprintf(&b, "    %s: %s\n", c.name, line)
	}
	c.said = nil
	c.eachOpen(func(ch *programChannel) { ch.report(&b) })
	return b.String()
}

// programChannel is an open channel, and what was heard on it since it was last reported.
type programChannel struct {
	client    *programClient
	id        uint16
	noAck     map[string]bool // by consumer tag
	held      []uint64        // delivery tags
	answers   []string
	delivered []string
	confirmed string // last: brokers differ in how many they confirm at once
}

// call sends a method and waits for its answer; nil = it was refused.
func (ch *programChannel) call(m amqp.Method) amqp.Method {
	ch.client.player.t.Helper()
	ch.client.send(ch.id, m)
	return ch.answer(m)
}

// answer waits for the answer to a method.
func (ch *programChannel) answer(to amqp.Method) amqp.Method {
	ch.client.player.t.Helper()
	class, _ := to.ID()
	_, isGet := to.(*amqp.BasicGet)
	return ch.client.await(ch.id, func(m amqp.Method) bool {
		if _, ok := m.(*amqp.BasicGetEmpty); ok {
			return isGet
		}
		is, _ := m.ID()
		return is == class && strings.HasSuffix(m.Name(), "-ok") && (!isGet || m.Name() == "basic.get-ok")
	})
}

// hear takes note of a method.
func (ch *programChannel) hear(e programEvent) {
	switch m := e.method.(type) {
	case *amqp.BasicDeliver:
		ch.delivered = append(ch.delivered, fmt.Sprintf("%s: %s%s from %q", m.ConsumerTag, e.body, again(m.Redelivered), m.Exchange))
		if !ch.noAck[m.ConsumerTag] {
			ch.held = append(ch.held, m.DeliveryTag)
		}
	case *amqp.BasicReturn:
		ch.answers = append(ch.answers, fmt.Sprintf("returned %s: %d %s", e.body, m.ReplyCode, m.ReplyText))
	case *amqp.BasicCancel:
		ch.answers = append(ch.answers, "cancelled "+m.ConsumerTag)
	case *amqp.BasicAck:
		ch.confirmed = fmt.Sprintf("+%d", m.DeliveryTag)
	case *amqp.BasicNack:
		ch.confirmed = fmt.Sprintf("-%d", m.DeliveryTag)
	case *amqp.ChannelClose:
		ch.client.said = append(ch.client.said, fmt.Sprintf("channel %d closed: %d %s", ch.id, m.ReplyCode, m.ReplyText))
		ch.client.send(ch.id, &amqp.ChannelCloseOK{})
		ch.client.channels[ch.id] = nil
	default:
		ch.answers = append(ch.answers, m.Name())
	}
}

func again(redelivered bool) string {
	if redelivered {
		return "*"
	}
	return ""
}

// report writes what was heard. Whether a delivery is heard before an answer is chance.
func (ch *programChannel) report(b *strings.Builder) {
	write := func(what string, list []string) {
		if len(list) > 0 {
			fmt.Fprintf(b, "    %s%d %s: %s\n", ch.client.name, ch.id, what, strings.Join(list, ", "))
		}
	}
	write("heard", ch.answers)
	write("got", ch.delivered)
	if ch.confirmed != "" {
		write("was last confirmed", []string{ch.confirmed})
	}
	ch.answers, ch.delivered, ch.confirmed = nil, nil, ""
}

// do carries out a step and returns what it was.
func (ch *programChannel) do(s programStep) string {
	ch.client.player.t.Helper()
	p, queue := ch.client.player, ch.client.player.queue(s.n[0])
	flip := func(i, of int) bool { return s.n[i]%of == 0 }
	switch s.verb {
	case "publish":
		return ch.publish("", queue, 1+s.n[1]%3, flip(2, 2))
	case "fan":
		return ch.publish(p.exchange(), "", 1, flip(2, 2))
	case "consume":
		return ch.consume(queue, "c"+strconv.Itoa(s.n[1]%4), flip(2, 3))
	case "get":
		if p.quorum {
			return "nothing" // RabbitMQ counts a consumer for each
		}
		return ch.get(queue, flip(1, 2))
	case "ack", "nack", "reject":
		return ch.settle(s.verb, s.n[0], flip(1, 3), flip(2, 2))
	case "beat":
		ch.client.write(amqp.AppendHeartbeat(nil))
		return s.verb
	case "misbeat":
		if !flip(0, 4) {
			return "nothing"
		}
		b := amqp.AppendHeartbeat(nil)
		b[2] = byte(ch.id)
		ch.client.write(b)
		return s.verb
	case "close":
		ch.call(&amqp.ChannelClose{ReplyCode: amqp.ReplySuccess})
		ch.client.channels[ch.id] = nil
		return s.verb
	case "disconnect":
		if flip(0, 2) {
			ch.client.send(0, &amqp.ConnectionClose{ReplyCode: amqp.ReplySuccess})
			ch.client.await(0, func(m amqp.Method) bool { return m.Name() == "connection.close-ok" })
		}
		ch.client.hangUp()
		return s.verb
	}
	m := ch.method(s, queue)
	answer := ch.call(m)
	text := fmt.Sprintf("%s %+v", m.Name(), m)
	switch a := answer.(type) {
	case nil:
	case *amqp.QueueDeleteOK:
		text += fmt.Sprintf(": %d", a.MessageCount)
	case *amqp.QueuePurgeOK:
		text += fmt.Sprintf(": %d", a.MessageCount)
	case *amqp.QueueDeclareOK:
		text += fmt.Sprintf(": %d, %d", a.MessageCount, a.ConsumerCount)
	}
	if _, ok := m.(*amqp.BasicRecover); ok {
		ch.held = nil
	}
	return text
}

// method is the method that a step consists of.
func (ch *programChannel) method(s programStep, queue string) amqp.Method {
	p := ch.client.player
	flip := func(i, of int) bool { return s.n[i]%of == 0 }
	switch s.verb {
	case "cancel":
		return &amqp.BasicCancel{ConsumerTag: "c" + strconv.Itoa(s.n[1]%4) + ch.client.name + strconv.Itoa(int(ch.id))}
	case "qos":
		return &amqp.BasicQos{PrefetchCount: uint16(s.n[1] % 4), Global: flip(2, 2)}
	case "recover":
		return &amqp.BasicRecover{Requeue: true}
	case "declare":
		m := &amqp.QueueDeclare{Queue: queue}
		if p.quorum && queue == p.queue(2) {
			m.Durable, m.Arguments = true, amqp.Table{{Key: "x-queue-type", Value: "quorum"}}
		}
		return m
	case "delete":
		choosy := !p.quorum // RabbitMQ cannot tell of a quorum queue whether it is used or empty
		return &amqp.QueueDelete{Queue: queue, IfUnused: choosy && flip(1, 5), IfEmpty: choosy && flip(2, 5)}
	case "purge":
		return &amqp.QueuePurge{Queue: queue}
	case "bind":
		return &amqp.QueueBind{Queue: queue, Exchange: p.exchange()}
	case "unbind":
		return &amqp.QueueUnbind{Queue: queue, Exchange: p.exchange()}
	case "select":
		return &amqp.TxSelect{}
	case "commit":
		return &amqp.TxCommit{}
	case "rollback":
		return &amqp.TxRollback{}
	case "confirm":
		return &amqp.ConfirmSelect{}
	}
	ch.client.player.t.Fatalf("%s: no such verb", s.verb)
	return nil
}

func (ch *programChannel) publish(exchange, key string, n int, mandatory bool) string {
	var b []byte
	first := ch.client.player.last + 1
	for range n {
		ch.client.player.last++
		body := "m" + strconv.Itoa(ch.client.player.last)
		b = amqp.AppendMethod(b, ch.id, &amqp.BasicPublish{Exchange: exchange, RoutingKey: key, Mandatory: mandatory})
		b = amqp.AppendContentHeader(b, ch.id, uint64(len(body)), amqp.Properties{}.Append(nil))
		b = amqp.AppendBody(b, ch.id, []byte(body), 4096)
	}
	ch.client.write(b)
	return fmt.Sprintf("publish m%d-m%d to %q %q, mandatory %t", first, ch.client.player.last, exchange, key, mandatory)
}

func (ch *programChannel) consume(queue, tag string, noAck bool) string {
	tag += ch.client.name + strconv.Itoa(int(ch.id))
	_, used := ch.noAck[tag]
	if !used {
		ch.noAck[tag] = noAck
	}
	ch.call(&amqp.BasicConsume{Queue: queue, ConsumerTag: tag, NoAck: noAck})
	return fmt.Sprintf("consume %s as %s, no-ack %t", queue, tag, noAck)
}

func (ch *programChannel) get(queue string, noAck bool) string {
	text := fmt.Sprintf("get %s, no-ack %t", queue, noAck)
	switch m := ch.call(&amqp.BasicGet{Queue: queue, NoAck: noAck}).(type) {
	case *amqp.BasicGetOK:
		if !noAck {
			ch.held = append(ch.held, m.DeliveryTag)
		}
		return text + fmt.Sprintf(": one%s, %d more", again(m.Redelivered), m.MessageCount)
	case *amqp.BasicGetEmpty:
		return text + ": empty"
	}
	return text
}

// settle answers one of the deliveries that the channel holds, or all up to it.
func (ch *programChannel) settle(verb string, n int, multiple, requeue bool) string {
	if len(ch.held) == 0 {
		return verb + " nothing"
	}
	i := n % len(ch.held)
	tag := ch.held[i]
	ch.held = slices.Delete(ch.held, i, i+1)
	if multiple && verb != "reject" {
		ch.held = slices.Delete(ch.held, 0, i)
	}
	switch verb {
	case "ack":
		ch.client.send(ch.id, &amqp.BasicAck{DeliveryTag: tag, Multiple: multiple})
	case "nack":
		ch.client.send(ch.id, &amqp.BasicNack{DeliveryTag: tag, Multiple: multiple, Requeue: requeue})
	default:
		ch.client.send(ch.id, &amqp.BasicReject{DeliveryTag: tag, Requeue: requeue})
		multiple = false
	}
	return fmt.Sprintf("%s %d, multiple %t, requeue %t", verb, tag, multiple, requeue)
}
