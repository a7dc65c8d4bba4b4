package broker

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

// What waits comes once, and never before its time, though the machine's clock is set back and forth by hours while the broker is down.
func TestClocksThatAreSetWhileTheBrokerIsDown(t *testing.T) {
	for seed := range uint64(20 / fewer) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newStepper(t, seed).play() })
		})
	}
}

// stepper is a broker that is started again and again, each time with another clock.
type stepper struct {
	*calendar
	random  *rand.Rand
	disk    *crashfs.FS
	off     time.Duration
	due     []hook.Instant // of messages by number
	arrived []int
}

func newStepper(t *testing.T, seed uint64) *stepper {
	t.Helper()
	s := &stepper{random: rand.New(rand.NewPCG(seed, 15)), disk: crashfs.New(seed)}
	s.calendar = openCalendar(t, s.disk, 0, nil)
	s.begin(amqp.Table{{Key: "x-delay", Value: int64(1)}, {Key: "x-schedule-id", Value: "none"}})
	s.publish(amqp.Table{{Key: "x-schedule-id", Value: "none"}, {Key: "x-schedule-cancel", Value: true}})
	return s
}

func (s *stepper) play() {
	s.t.Helper()
	for range 12 {
		for range 1 + s.random.IntN(40) {
			s.hold()
		}
		time.Sleep(time.Duration(s.random.Int64N(int64(2 * time.Hour))))
		s.take()
		after := s.disk.LosePower()
		_ = s.store.Close(context.Background()) // on a disk without power
		s.disk, s.off = after, s.off+time.Duration(s.random.Int64N(int64(10*time.Hour)))-5*time.Hour
		s.calendar = openCalendar(s.t, s.disk, s.off, nil)
		time.Sleep(time.Millisecond)
		s.take()
	}
	time.Sleep(80 * time.Hour)
	s.take()
	for n, times := range s.arrived {
		if times != 1 {
			s.t.Errorf("message %d, due %v, came %d times", n, s.due[n].Time(), times)
		}
	}
	s.close()
}

// hold publishes a message that the exchange holds, or the queue.
func (s *stepper) hold() {
	s.t.Helper()
	number, wait := uint64(len(s.due)), time.Duration(1+s.random.Int64N(int64(6*time.Hour/time.Millisecond)))*time.Millisecond
	s.due, s.arrived = append(s.due, s.clock().Add(wait)), append(s.arrived, 0)
	p := amqp.Properties{Headers: amqp.Table{{Key: "x-delay", Value: wait.Milliseconds()}}}
	p.Set(amqp.PropHeaders)
	m := queue.Message{Props: p.Append(nil), Body: binary.BigEndian.AppendUint64(nil, number), Seq: 1, Flags: queue.Persistent | queue.HasHeaders}
	exchange, key := "x", ""
	if s.random.IntN(2) == 0 { // the session reads x-deliver-after
		exchange, key, m.Wait = "", "q", queue.WaitFor(wait)
	}
	m.Routing = &queue.RoutingInfo{Exchange: exchange, Key: key}
	to, _, err := s.vhost.Route(exchange, &parts.Message{Key: key, Props: m.Props}, nil)
	if err != nil || len(to) != 1 {
		s.t.Fatalf("routed to %d, error %v", len(to), err)
	}
	done := make(confirmed, 1)
	b := queue.NewBatch()
	b.Messages, b.Publisher = append(b.Messages, m), done
	to[0].Publish(b)
	if err := <-done; err != nil {
		s.t.Fatal(err)
	}
}

// take takes what has arrived, for good.
func (s *stepper) take() {
	s.t.Helper()
	time.Sleep(time.Second)
	q, err := s.vhost.Queue("q", 0)
	if err != nil {
		s.t.Fatal(err)
	}
	err = q.Do(func(in *queue.Queue, now hook.Instant) {
		for in.Get(now, &queue.Consumer{Queue: q, NoAck: true}, func(d queue.Delivery, _ int) {
			number := binary.BigEndian.Uint64(d.Body)
			if s.arrived[number]++; now < s.due[number] {
				s.t.Errorf("message %d came at %v, due %v", number, now.Time(), s.due[number].Time())
			}
		}) {
		}
	})
	if err != nil {
		s.t.Fatal(err)
	}
	time.Sleep(time.Second) // until that is durable
}
