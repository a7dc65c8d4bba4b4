package queue

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// wide returns a message whose properties fit no small frame.
func wide(id uint64) Message {
	m := message(id, 8)
	p := amqp.Properties{Headers: amqp.Table{{Key: "k", Value: string(make([]byte, 2*everyFrame))}}}
	p.Set(amqp.PropHeaders)
	m.Props = p.Append(nil)
	return m
}

// A message that fits the frames of one of several consumers goes to that one; one that fits those of none leaves, and does not keep
// the queue from those behind it.
func TestMessagesThatDoNotFitAConsumersFrames(t *testing.T) {
	type client struct {
		frame, room int
		priority    int64
		noAck       bool
	}
	narrow := client{frame: everyFrame, room: 9}
	for name, tc := range map[string]struct {
		clients []client
		single  bool
		want    string // by client, then what left, and what is ready
	}{
		"one with small frames":              {clients: []client{narrow}, want: "[[1 3]] left [2] ready 0"},
		"without acknowledgement":            {clients: []client{{frame: everyFrame, room: 9, noAck: true}}, want: "[[1 3]] left [2] ready 0"},
		"one with large frames":              {clients: []client{narrow, {room: 9}}, want: "[[1 3] [2]] left [] ready 0"},
		"one of lower priority":              {clients: []client{{frame: everyFrame, room: 9, priority: 1}, {room: 9}}, want: "[[1 3] [2]] left [] ready 0"},
		"one that has no capacity":           {clients: []client{narrow, {}}, want: "[[1] []] left [] ready 2"},
		"the active one is alone":            {clients: []client{narrow, {room: 9}}, single: true, want: "[[1 3] []] left [2] ready 0"},
		"none fits, one has no capacity":     {clients: []client{narrow, {frame: everyFrame}}, want: "[[1 3] []] left [2] ready 0"},
		"the last in a batch that is larger": {clients: []client{{frame: everyFrame, room: 1}, {frame: everyFrame, room: 1}}, want: "[[1] [3]] left [2] ready 0"},
	} {
		t.Run(name, func(t *testing.T) {
			q, h := passive(t, Config{Profile: &Profile{SingleActive: tc.single}}, ttlHooks(hook.ScanAnywhere, &hook.Target{}))
			var sinks []*sink
			for i, c := range tc.clients {
				s := &sink{room: c.room, frame: c.frame}
				sinks = append(sinks, s)
				if err := q.AddConsumer(second, &Consumer{Tag: strconv.Itoa(i), Sink: s, Priority: c.priority, NoAck: c.noAck}); err != nil {
					t.Fatal(err)
				}
			}
			q.enqueue(second, batchOf(message(1, 8), wide(2), message(3, 8)))
			var got, left []any
			for _, s := range sinks {
				got = append(got, s.ids)
			}
			for _, d := range h.dead {
				left = append(left, d.id)
				if d.reason != hook.ReasonTooLarge {
					t.Errorf("it left for the reason %s", d.reason)
				}
			}
			if text := fmt.Sprint(got, " left ", left, " ready ", q.ready); text != tc.want {
				t.Errorf("got %s, want %s", text, tc.want)
			}
			checkSums(t, q)
			q.close()
		})
	}
}

// A message waits for the one consumer that can take it, and goes to it as soon as it can.
func TestAMessageWaitsForTheConsumerWhoseFramesItFits(t *testing.T) {
	q, h := passive(t, Config{}, ttlHooks(hook.ScanAnywhere, &hook.Target{}))
	small, large := &sink{room: 9, frame: everyFrame}, &sink{}
	wakes := &Consumer{Tag: "large", Sink: large}
	for _, c := range []*Consumer{{Tag: "small", Sink: small}, wakes} {
		if err := q.AddConsumer(second, c); err != nil {
			t.Fatal(err)
		}
	}
	q.enqueue(second, batchOf(wide(1), message(2, 8)))
	if len(small.ids)+len(large.ids) != 0 || q.ready != 2 {
		t.Fatalf("got %v and %v", small.ids, large.ids)
	}
	large.room = 1
	q.consumers.wake(q, second, wakes)
	if fmt.Sprint(small.ids, large.ids) != "[2] [1]" || len(h.dead) != 0 {
		t.Errorf("got %v and %v, %d left", small.ids, large.ids, len(h.dead))
	}
	checkSums(t, q)
}

// basic.get: a message that fits others' frames stays; one that fits none leaves, and the next one is handed out.
func TestGettingMessagesThatDoNotFit(t *testing.T) {
	for _, others := range []bool{true, false} {
		q, h := passive(t, Config{}, ttlHooks(hook.ScanAnywhere, &hook.Target{}))
		q.enqueue(second, batchOf(wide(1), message(2, 8)))
		var got []uint64
		c := &Consumer{NoAck: true, Fit: func(d *Delivery) (bool, bool) { return len(d.Props) <= everyFrame, others }}
		ok := q.Get(second, c, func(d Delivery, _ int) { got = append(got, idOf(d.Body)) })
		switch {
		case others && (ok || q.ready != 2 || len(h.dead) != 0):
			t.Errorf("it fits others: got %v, %d ready, %d left", got, q.ready, len(h.dead))
		case !others && (!ok || len(got) != 1 || got[0] != 2 || len(h.dead) != 1 || h.dead[0].reason != hook.ReasonTooLarge):
			t.Errorf("it fits none: got %v, left %v", got, h.dead)
		}
		checkSums(t, q)
	}
}
