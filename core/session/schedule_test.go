package session

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// agenda is a plugin with an exchange type that holds messages for a second, if their header "id" names them. With the header
// "cancel" they cancel another message, and with "bad" they are refused.
type agenda struct{ hook.NoHooks }

func (agenda) ExchangeTypes() []hook.ExchangeType {
	return []hook.ExchangeType{{Name: "x-agenda", Schedule: func(*hook.Exchange) hook.Schedule {
		return hook.Schedule{Inner: "fanout", MaxHeld: hook.LimitOf(3), Plan: func(m *hook.Publishing, p *hook.Plan) error {
			if _, bad := m.Header("bad"); bad {
				return errors.New("invalid header 'bad'")
			}
			if id, ok := m.HeaderText("id"); ok {
				p.ID, p.Hold = id, m.Now.Add(time.Second)
			}
			_, p.Cancel = m.Header("cancel")
			return nil
		}}
	}}}
}

// withAgenda runs a test with a client of a vhost that has the exchanges "x", with the queue "q", and "unbound".
func withAgenda(t *testing.T, test func(p *probe)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, err := chain.New([]chain.Named{{Name: "agenda", Plugin: agenda{}}}, chain.Options{})
		if err != nil {
			t.Fatal(err)
		}
		v := vhost.New(vhost.Config{Name: "/", Chain: c, Clock: clock.New(), Log: discard()})
		p := newProbe(t, func(o *Options) { o.VHosts = func(string) (*vhost.VHost, bool) { return v, true } }).open().channel(1).channel(2)
		p.queue(1, "q")
		for _, name := range []string{"x", "unbound"} {
			do[*amqp.ExchangeDeclareOK](p, 1, &amqp.ExchangeDeclare{Exchange: name, Type: "x-agenda"})
		}
		do[*amqp.QueueBindOK](p, 1, &amqp.QueueBind{Queue: "q", Exchange: "x"})
		test(p)
	})
}

// scheduled is a message to an exchange with the type of agenda, with headers from names and values in turn.
func scheduled(exchange, body string, mandatory bool, headers ...any) published {
	m := published{exchange: exchange, body: body, mandatory: mandatory}
	for i := 0; i < len(headers); i += 2 {
		m.props.Headers = append(m.props.Headers, amqp.Field{Key: fmt.Sprint(headers[i]), Value: headers[i+1]})
	}
	m.props.Set(amqp.PropHeaders)
	return m
}

// answers describes everything that a channel gets: returned bodies, confirms and other methods. It waits for the current turn of the exchange,
// which answers after the publishing call has returned.
func (p *probe) answers(channel uint16) string {
	p.t.Helper()
	synctest.Wait()
	p.feed(nil)
	var all []string
	for len(p.out) > 0 {
		switch on, m := p.method(); m := m.(type) {
		case *amqp.BasicReturn:
			_, body := p.content(channel)
			all = append(all, fmt.Sprintf("%d:%s", m.ReplyCode, body))
		case *amqp.BasicAck:
			all = append(all, fmt.Sprintf("+%d", m.DeliveryTag))
		case *amqp.BasicNack:
			all = append(all, fmt.Sprintf("-%d", m.DeliveryTag))
		default:
			all = append(all, strings.TrimPrefix(fmt.Sprintf("%T", m), "*amqp."))
			if on != channel {
				p.t.Errorf("on channel %d: %T", on, m)
			}
		}
	}
	return strings.Join(all, " ")
}

// A mandatory message without a destination is returned and not held. A mandatory cancellation that finds nothing is returned before its
// confirm, and after earlier messages have arrived.
func TestScheduledMandatory(t *testing.T) {
	withAgenda(t, func(p *probe) {
		do[*amqp.ConfirmSelectOK](p, 1, &amqp.ConfirmSelect{})
		for _, tt := range []struct {
			ms   []published
			want string
		}{
			{[]published{scheduled("unbound", "a", true, "id", "1")}, "312:a +1"},
			{[]published{scheduled("unbound", "a", false, "id", "1")}, "+2"},
			{[]published{scheduled("x", "a", true, "id", "1")}, "+3"},
			{[]published{scheduled("x", "cancel", true, "id", "1", "cancel", true)}, "+4"},
			{[]published{scheduled("x", "cancel", true, "id", "1", "cancel", true)}, "312:cancel +5"},
			{[]published{scheduled("x", "cancel", false, "id", "1", "cancel", true)}, "+6"},
			{[]published{scheduled("x", "b", false, "id", "2"), scheduled("x", "cancel", true, "id", "2", "cancel", true)}, "+7 +8"},
		} {
			p.publish(1, tt.ms...)
			if got := p.answers(1); got != tt.want {
				t.Errorf("%s: got %q, want %q", tt.ms[0].body, got, tt.want)
			}
		}
		if returned := p.conn.channels.at(1).allCounters().Returned; returned != 2 {
			t.Errorf("%d are counted as returned", returned)
		}
		p.publish(2, scheduled("x", "lost", true, "id", "9", "cancel", true)) // without confirms
		if got := p.answers(2); got != "312:lost" {
			t.Errorf("without confirms: %q", got)
		}
		time.Sleep(2 * time.Second)
		p.holds(2, "q", 0)
	})
}

// A queue bound beside the exchange gets the cancellation like any message; it is then not returned.
func TestCancellationThatIsRouted(t *testing.T) {
	withAgenda(t, func(p *probe) {
		do[*amqp.ExchangeDeclareOK](p, 1, &amqp.ExchangeDeclare{Exchange: "first", Type: "fanout"})
		do[*amqp.QueueBindOK](p, 1, &amqp.QueueBind{Queue: "q", Exchange: "first"})
		do[*amqp.ExchangeBindOK](p, 1, &amqp.ExchangeBind{Destination: "x", Source: "first"})
		p.publish(1, scheduled("first", "cancel", true, "id", "1", "cancel", true))
		if got := p.answers(1); got != "" {
			t.Errorf("got %q", got)
		}
		p.holds(1, "q", 1)
	})
}

// A message that the plugin refuses closes its channel, and no more. Beyond the limit it is nacked.
func TestScheduledRefusals(t *testing.T) {
	withAgenda(t, func(p *probe) {
		do[*amqp.ConfirmSelectOK](p, 1, &amqp.ConfirmSelect{})
		for i := range 4 {
			p.publish(1, scheduled("x", "a", false, "id", strconv.Itoa(i)))
		}
		if got := p.answers(1); got != "+1 +2 +3 -4" {
			t.Errorf("got %q", got)
		}
		p.publish(1, scheduled("x", "a", false, "bad", true))
		p.closed(1, 406, "PRECONDITION_FAILED - invalid header 'bad'")
		time.Sleep(2 * time.Second)
		p.holds(2, "q", 3)
	})
}

// Transactions schedule and cancel messages at the commit.
func TestScheduledTransaction(t *testing.T) {
	withAgenda(t, func(p *probe) {
		do[*amqp.TxSelectOK](p, 1, &amqp.TxSelect{})
		p.publish(1, scheduled("x", "a", true, "id", "1"), scheduled("x", "b", false, "id", "2"))
		p.rollback(1)
		p.publish(2, scheduled("x", "lost", true, "id", "1", "cancel", true))
		if got := p.answers(2); got != "312:lost" {
			t.Errorf("after a rollback: %q", got)
		}
		p.publish(1, scheduled("x", "a", true, "id", "1"), scheduled("x", "b", false, "id", "2"), scheduled("unbound", "back", true, "id", "1"))
		p.send(1, &amqp.TxCommit{})
		if got := p.answers(1); got != "312:back TxCommitOK" {
			t.Errorf("got %q", got)
		}
		p.publish(1, scheduled("x", "found", true, "id", "1", "cancel", true), scheduled("x", "lost", true, "id", "3", "cancel", true),
			scheduled("x", "gone", true, "id", "1", "cancel", true))
		p.send(1, &amqp.TxCommit{})
		if got := p.answers(1); got != "312:lost 312:gone TxCommitOK" {
			t.Errorf("got %q", got)
		}
		time.Sleep(2 * time.Second)
		p.holds(2, "q", 1)
	})
}

// A cancellation races with a release: in either order, the message arrives or the cancellation is not returned.
func TestCancellationAndReleaseRace(t *testing.T) {
	withAgenda(t, func(p *probe) {
		won := 0
		for i := range 200 {
			p.publish(1, scheduled("x", "a", false, "id", "1"))
			wait := time.Second - 50*time.Microsecond + time.Duration(i)*500*time.Nanosecond
			time.Sleep(wait)
			p.publish(1, scheduled("x", "lost", true, "id", "1", "cancel", true))
			lost := p.answers(1) == "312:lost"
			time.Sleep(time.Second)
			p.send(2, &amqp.BasicGet{Queue: "q", NoAck: true})
			_, m := p.method()
			_, came := m.(*amqp.BasicGetOK)
			if came {
				p.content(2)
			} else {
				won++
			}
			if came != lost {
				t.Fatalf("after %v: returned %v, came %v", wait, lost, came)
			}
		}
		if won == 0 || won == 200 {
			t.Errorf("the cancellation won %d times of 200", won)
		}
	})
}
