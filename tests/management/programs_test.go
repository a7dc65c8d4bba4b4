package management

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
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
