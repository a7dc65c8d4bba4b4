package power

import (
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/wlog/seg"
)

// A message that recurs by a cron expression comes once a day in both weeks in which the clock is changed, though the broker is killed
// meanwhile: at the time that the expression says, or when the broker starts if it was down then. An hour that there is not in spring is
// the next one, and of an hour that there is twice in autumn the first counts.
func TestCronThroughClockChanges(t *testing.T) {
	for _, tt := range []struct {
		name, from string
		down       [2]string // the broker
		want       []string
	}{
		{"spring", "2026-03-27T12:00:30Z", [2]string{}, []string{"2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30", "2026-03-31T00:30"}},
		{"autumn", "2026-10-23T12:00:30Z", [2]string{}, []string{"2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30", "2026-10-27T01:30"}},
		{
			"spring, restarted in the hour that there is not", "2026-03-27T12:00:30Z",
			[2]string{"2026-03-29T00:50", "2026-03-29T01:20"},
			[]string{"2026-03-28T01:30", "2026-03-29T01:21", "2026-03-30T00:30", "2026-03-31T00:30"},
		},
		{
			"autumn, restarted between both", "2026-10-23T12:00:30Z",
			[2]string{"2026-10-25T00:45", "2026-10-25T01:15"},
			[]string{"2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30", "2026-10-27T01:30"},
		},
		{
			"down for two days", "2026-10-23T12:00:30Z",
			[2]string{"2026-10-24T12:00", "2026-10-26T12:00"},
			[]string{"2026-10-24T00:30", "2026-10-26T12:01", "2026-10-27T01:30"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				from, err := time.Parse(time.RFC3339, tt.from)
				if err != nil {
					t.Fatal(err)
				}
				c := &cronRun{run: newRun(1, settings{durability: seg.Flush, shards: 1}, slog.New(slog.DiscardHandler))}
				c.off = time.Until(from)
				c.start()
				c.say(true)
				for c.now().Before(from.Add(4 * 24 * time.Hour)) {
					if c.now().Format(minutes) == tt.down[0] {
						c.fs = c.fs.Kill()
						c.broker.abandon()
						for c.now().Format(minutes) != tt.down[1] {
							time.Sleep(time.Minute)
						}
						c.start()
						c.say(false)
					}
					c.listen()
					time.Sleep(time.Minute)
				}
				c.broker.abandon()
				if !slices.Equal(c.came, tt.want) {
					t.Errorf("came at %v, want %v", c.came, tt.want)
				}
			})
		})
	}
}

const minutes = "2006-01-02T15:04"

// cronRun is a client that consumes what recurs.
type cronRun struct {
	*run
	client *client
	came   []string
}

func (c *cronRun) now() time.Time { return time.Now().Add(c.off).UTC() }

func (c *cronRun) start() {
	c.disk = newDisk(c.fs, true)
	c.broker = start(c.disk, c.settings, c.off, c.log)
	<-c.broker.opened
	if c.broker.failure != nil {
		panic(c.broker.failure)
	}
	c.broker.serve(c.log)
	c.client = c.broker.connect(1)
}

// say declares everything, schedules the message if it is the first time, and consumes.
func (c *cronRun) say(first bool) {
	c.client.say(1, &amqp.ChannelOpen{})
	if first {
		c.client.say(1,
			&amqp.ExchangeDeclare{Exchange: "later", Type: "x-delayed-message", Durable: true, Arguments: amqp.Table{{Key: "x-delayed-type", Value: "fanout"}}},
			&amqp.QueueDeclare{Queue: "work", Durable: true},
			&amqp.QueueBind{Queue: "work", Exchange: "later"},
		)
		p := amqp.Properties{DeliveryMode: 2, Headers: amqp.Table{
			{Key: "x-schedule-id", Value: "nightly"}, {Key: "x-schedule-cron", Value: "30 2 * * *"}, {Key: "x-schedule-zone", Value: "Europe/Berlin"},
		}}
		p.Set(amqp.PropDeliveryMode, amqp.PropHeaders)
		b := amqp.AppendMethod(nil, 1, &amqp.BasicPublish{Exchange: "later"})
		c.client.chunk(amqp.AppendContentHeader(b, 1, 0, p.Append(nil)))
	}
	c.client.say(1, &amqp.BasicConsume{Queue: "work", ConsumerTag: "c", NoAck: true})
	c.listen()
}

// listen notes what has come.
func (c *cronRun) listen() {
	c.step()
	for _, e := range c.client.hear() {
		switch m := e.method.(type) {
		case *amqp.BasicDeliver:
			c.came = append(c.came, c.now().Format(minutes))
		case *amqp.ChannelClose, *amqp.ConnectionClose:
			panic(m)
		}
	}
}
