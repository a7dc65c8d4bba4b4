package broker

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// player plays the commands of a script. Each session in it is a connection with a channel.
type player struct {
	t         *testing.T
	url       string
	sessions  map[string]*session
	queues    map[string]bool // declared, for the clean-up of a broker that outlives the script
	exchanges map[string]bool
}

func newPlayer(t *testing.T, url string) *player {
	t.Helper()
	p := &player{t: t, url: url, sessions: map[string]*session{}, queues: map[string]bool{}, exchanges: map[string]bool{}}
	t.Cleanup(p.close)
	return p
}

// session is a connection and a channel, which are opened when they are needed: also again, after an error.
type session struct {
	t       *testing.T
	url     string
	conn    *amqp091.Connection
	ch      *amqp091.Channel
	closed  chan *amqp091.Error
	returns chan amqp091.Return

	confirms  chan amqp091.Confirmation
	published int // since the last "confirms"
	consumers map[string]<-chan amqp091.Delivery
	cancels   chan string
	shown     map[string]uint64 // delivery tags of the messages shown, by body
	latest    uint64            // that of the last one
}

// play runs one line and appends what it prints.
func (p *player) play(line string, out *bytes.Buffer) {
	p.t.Helper()
	name, command, named := strings.Cut(line, ": ")
	if !named {
		name, command = "", line
	}
	c, err := parseCall(command)
	if err != nil {
		p.t.Fatalf("%s: %v", line, err)
	}
	do, ok := commands[c.verb]
	if !ok {
		p.t.Fatalf("%s: no such command", line)
	}
	s := p.session(name)
	if c.verb != "closed" {
		s.open()
	}
	p.note(c)
	if err := do(s, c, out); err != nil {
		s.say(err, line, out)
	}
}

// note remembers what is declared.
func (p *player) note(c call) {
	switch c.verb {
	case "declare":
		p.queues[c.word(0)] = true
	case "exchange":
		p.exchanges[c.word(0)] = true
	}
}

func (p *player) session(name string) *session {
	s := p.sessions[name]
	if s == nil {
		s = &session{t: p.t, url: p.url}
		p.sessions[name] = s
	}
	return s
}

// open makes sure that there is a channel.
func (s *session) open() {
	s.t.Helper()
	var err error
	if s.conn == nil || s.conn.IsClosed() {
		s.conn, err = process.Dial(s.url)
		s.ch = nil
	}
	if err == nil && (s.ch == nil || s.ch.IsClosed()) {
		err = s.openChannel()
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *session) openChannel() error {
	var err error
	s.ch, err = s.conn.Channel()
	if err != nil {
		return err
	}
	const plenty = 1000 // more than a script ever has pending
	s.closed = s.ch.NotifyClose(make(chan *amqp091.Error, 1))
	s.returns = s.ch.NotifyReturn(make(chan amqp091.Return, plenty))
	s.confirms = s.ch.NotifyPublish(make(chan amqp091.Confirmation, plenty))
	s.cancels = s.ch.NotifyCancel(make(chan string, plenty))
	s.consumers, s.published = map[string]<-chan amqp091.Delivery{}, 0
	s.shown = map[string]uint64{}
	return nil
}

// say prints an error that the broker answered with. Any other ends the test.
func (s *session) say(err error, line string, out *bytes.Buffer) {
	s.t.Helper()
	var e *amqp091.Error
	if !errors.As(err, &e) || !e.Server {
		s.t.Fatalf("%s: %v", line, err)
	}
	what := "connection"
	if e.Recover { // the client's word for a channel error
		what = "channel"
	}
	fmt.Fprintf(out, "%s closed: %d %s\n", what, e.Code, e.Reason)
}

// close ends the sessions, and deletes what was declared.
func (p *player) close() {
	s := p.session("clean-up")
	s.open()
	for name := range p.queues {
		_, _ = s.ch.QueueDelete(name, false, false, false) // it may be gone, or another connection's
		s.open()
	}
	for name := range p.exchanges {
		_ = s.ch.ExchangeDelete(name, false, false) // the same
		s.open()
	}
	for _, s := range p.sessions {
		if s.conn == nil {
			continue
		}
		if err := s.conn.Close(); err != nil && !errors.Is(err, amqp091.ErrClosed) {
			p.t.Errorf("closing a connection: %v", err)
		}
	}
}

// await receives from c.
func await[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	v, open, inTime := process.Receive(c)
	switch {
	case !inTime:
		t.Fatalf("%s: nothing came", what)
	case !open:
		t.Fatalf("%s: closed", what)
	}
	return v
}
