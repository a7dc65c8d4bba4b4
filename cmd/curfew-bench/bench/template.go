package bench

import (
	"encoding/binary"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
)

const (
	channel   = 1       // the only channel of each connection
	ringSize  = 1 << 16 // bytes of a ring, unless its keys, batches or variants need more
	writeSize = 1 << 18 // most bytes in a write of several messages
	ringMost  = 1 << 22 // most bytes of a ring that is extended to whole batches
	stampSize = 8       // bytes of a stamp: nanoseconds, big endian
	variants  = 1 << 14 // messages in a ring whose messages have random expirations
)

// template is a ring of complete messages that are ready to be written to a socket; consecutive messages are one slice of buf. Only the
// stamp, the first eight bytes of each body, changes between writes.
//
//	| basic.publish frame | header frame | body frame: | stamp 8 | zeros ... || next message ...
type template struct {
	buf    []byte
	off    []int   // message i is buf[off[i]:off[i+1]]
	stamps []int   // position of message i's stamp in buf; nil if bodies are too short for stamps
	plus   []int64 // added to message i's stamp; nil = 0
	batch  int     // messages in one write
}

// content describes the messages of a template.
type content struct {
	exchange   string
	keys       []string // routing keys, used in turn; with the default exchange, names of queues
	size       int      // of the body
	batch      int      // messages in one write
	delivered  bool     // in the form in which a broker delivers them
	persistent bool
	mandatory  bool
	expiration span   // the range of the messages' expirations
	ttl        int64  // of the queue, milliseconds; -1 = none
	wait       string // the header that carries the time from expiration; "" = it is the message's expiration
	due        bool   // stamp with the instant at which the message falls due instead of that of sending
	frameMax   int
}

func newTemplate(c content) *template {
	t := &template{off: []int{0}}
	t.append(c, 0)
	n := t.plan(c, len(t.buf))
	for i := 1; i < n; i++ {
		t.append(c, i)
	}
	return t
}

// plan sets the batch and returns the length of the ring: each key equally often, and whole batches if they fit.
func (t *template) plan(c content, size int) int {
	t.batch = max(1, min(c.batch, writeSize/size))
	n := lcm(len(c.keys), t.batch)
	if n*size > ringMost {
		n = len(c.keys)
	}
	least := ringSize / size
	if c.expiration.hi > c.expiration.lo {
		least = variants
	}
	return n * max(1, (least+n-1)/n)
}

func lcm(a, b int) int {
	x, y := a, b
	for y > 0 {
		x, y = y, x%y
	}
	return a / x * b
}

func (t *template) append(c content, i int) {
	key := c.keys[i%len(c.keys)]
	if c.delivered {
		t.buf = amqp.AppendDeliver(t.buf, channel, "c", uint64(i+1), false, nil, []byte(key))
	} else {
		t.buf = amqp.AppendMethod(t.buf, channel, &amqp.BasicPublish{Exchange: c.exchange, RoutingKey: key, Mandatory: c.mandatory})
	}
	t.buf = amqp.AppendContentHeader(t.buf, channel, uint64(c.size), t.properties(c))
	if c.size >= stampSize {
		t.stamps = append(t.stamps, len(t.buf)+amqp.FrameOverhead-1)
	}
	t.buf = amqp.AppendBody(t.buf, channel, make([]byte, c.size), c.frameMax)
	t.off = append(t.off, len(t.buf))
}

func (t *template) properties(c content) []byte {
	var p amqp.Properties
	lifetime := c.ttl
	if c.persistent {
		p.Set(amqp.PropDeliveryMode)
		p.DeliveryMode = 2
	}
	if c.expiration.set {
		ms := c.expiration.lo + rand.Int64N(c.expiration.hi-c.expiration.lo+1)
		c.limit(&p, ms)
		lifetime = ms
		if c.ttl >= 0 {
			lifetime = min(ms, c.ttl)
		}
	}
	if c.due {
		t.plus = append(t.plus, lifetime*int64(time.Millisecond))
	}
	return p.Append(nil)
}

// limit sets the time in milliseconds after which a message expires, or is released.
func (c *content) limit(p *amqp.Properties, ms int64) {
	if c.wait != "" {
		p.Set(amqp.PropHeaders)
		p.Headers = amqp.Table{{Key: c.wait, Value: ms}}
		return
	}
	p.Set(amqp.PropExpiration)
	p.Expiration = strconv.FormatInt(ms, 10)
}

// len returns the number of messages in the ring.
func (t *template) len() int { return len(t.off) - 1 }

// stamp sets the stamps of messages i to i+n to at, plus each message's own addition.
func (t *template) stamp(i, n int, at int64) {
	if t.stamps == nil {
		return
	}
	for j, where := range t.stamps[i : i+n] {
		v := at
		if t.plus != nil {
			v += t.plus[i+j]
		}
		binary.BigEndian.PutUint64(t.buf[where:], uint64(v))
	}
}

// run returns messages i to i+n as they are written.
func (t *template) run(i, n int) []byte { return t.buf[t.off[i]:t.off[i+n]] }
