package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/curfewmq/curfew/core/amqp"
)

// window tracks the publisher confirms of one channel: which messages, numbered from 1, are not confirmed yet. A confirm settles one
// message or all up to one, and confirms come in any order. At most limit messages are outstanding.
type window struct {
	limit   uint64
	sent    uint64
	low     uint64   // everything up to this number is settled
	ahead   uint64   // settled beyond low
	settled []bool   // by number modulo its length, a power of two not below limit
	flights []flight // oldest first, from landed on
	landed  int
	nacked  uint64
	latency histogram // publish to confirm, by write
}

// flight is one write of n messages, the last of them numbered last.
type flight struct {
	last, n uint64
	at      int64
}

func newWindow(limit int64) *window {
	n := 1
	for int64(n) < limit {
		n <<= 1
	}
	return &window{limit: uint64(limit), settled: make([]bool, n)}
}

func (w *window) outstanding() uint64 { return w.sent - w.low - w.ahead }

// room returns how many more messages may be sent. Besides limit, the length of settled bounds it: if message low+1 stays unconfirmed,
// at most len(settled) messages are sent after low.
func (w *window) room() uint64 {
	return min(w.limit-w.outstanding(), uint64(len(w.settled))-(w.sent-w.low))
}

// send records that n more messages were sent, intended for the instant at.
func (w *window) send(n uint64, at int64) {
	w.sent += n
	w.flights = append(w.flights, flight{last: w.sent, n: n, at: at})
}

// settle processes one confirm.
func (w *window) settle(tag uint64, multiple, nack bool, now int64) error {
	if tag > w.sent || (tag == 0 && !multiple) {
		return fmt.Errorf("broker confirmed message %d, %d were published", tag, w.sent)
	}
	if tag == 0 {
		tag = w.sent
	}
	before := w.low + w.ahead
	if multiple {
		w.through(tag)
	} else {
		w.single(tag)
	}
	if nack {
		w.nacked += w.low + w.ahead - before
	}
	w.land(now)
	return nil
}

func (w *window) at(n uint64) *bool { return &w.settled[n&uint64(len(w.settled)-1)] }

func (w *window) single(tag uint64) {
	if tag <= w.low || *w.at(tag) {
		return
	}
	*w.at(tag) = true
	w.ahead++
	w.slide()
}

func (w *window) through(tag uint64) {
	for w.low < tag {
		w.low++
		if s := w.at(w.low); *s {
			*s = false
			w.ahead--
		}
	}
	w.slide()
}

func (w *window) slide() {
	for w.ahead > 0 && *w.at(w.low + 1) {
		w.low++
		w.ahead--
		*w.at(w.low) = false
	}
}

// land records the latency of the writes whose messages are all confirmed.
func (w *window) land(now int64) {
	for w.landed < len(w.flights) && w.flights[w.landed].last <= w.low {
		f := w.flights[w.landed]
		w.latency.record(now-f.at, f.n)
		w.landed++
	}
	if w.landed*2 > len(w.flights) { // on average this moves each flight at most once: there may be one for each message
		w.flights = append(w.flights[:0], w.flights[w.landed:]...)
		w.landed = 0
	}
}

// gate is a window shared by the goroutine that publishes and the one that reads confirms.
type gate struct {
	least uint64 // free room that is worth a write

	mu      sync.Mutex // guards window
	window  *window
	changed chan struct{} // holds one token: sent when the window has changed
}

// newGate returns a gate for writes of batch messages.
func newGate(limit, batch int64) *gate {
	return &gate{least: uint64(max(1, min(batch, limit/4))), window: newWindow(limit), changed: make(chan struct{}, 1)}
}

// room waits until the window has room for a batch, or for a quarter of its limit, and returns the room. Without this wait, confirms
// that arrive one by one would turn batches into writes of one message.
func (g *gate) room(ctx context.Context) (int64, error) {
	return g.wait(ctx, func(w *window) bool { return w.room() >= g.least })
}

// drained waits until every message is settled.
func (g *gate) drained(ctx context.Context) error {
	_, err := g.wait(ctx, func(w *window) bool { return w.outstanding() == 0 })
	return err
}

func (g *gate) wait(ctx context.Context, until func(*window) bool) (int64, error) {
	for {
		g.mu.Lock()
		ok, room := until(g.window), g.window.room()
		g.mu.Unlock()
		if ok {
			return int64(room), nil
		}
		select {
		case <-g.changed:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

func (g *gate) send(n, at int64) {
	g.mu.Lock()
	g.window.send(uint64(n), at)
	g.mu.Unlock()
}

// settle processes the confirms of one read.
func (g *gate) settle(confirms []confirm, now int64) error {
	if len(confirms) == 0 {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var err error
	for _, c := range confirms {
		err = errors.Join(err, g.window.settle(c.tag, c.multiple, c.nack, now))
	}
	select {
	case g.changed <- struct{}{}:
	default:
	}
	return err
}

type confirm struct {
	tag            uint64
	multiple, nack bool
}

// asConfirm decodes basic.ack and basic.nack; ok is false for other methods.
func asConfirm(payload []byte) (c confirm, ok bool, err error) {
	class, method, err := amqp.MethodID(payload)
	if err != nil || class != amqp.ClassBasic {
		return confirm{}, false, err
	}
	switch method {
	case amqp.MethodBasicAck:
		c.tag, c.multiple, err = amqp.ParseAck(payload[4:])
	case amqp.MethodBasicNack:
		c.tag, c.multiple, _, err = amqp.ParseNack(payload[4:])
		c.nack = true
	default:
		return confirm{}, false, nil
	}
	return c, true, err
}
