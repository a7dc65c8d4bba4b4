package bench

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/amqp"
)

// deliveries parses the frames of deliveries without copying them.
type deliveries struct {
	tag   uint64
	left  uint64 // bytes of the body that have not arrived yet
	first bool   // the next body frame is the first
	stamp int64
	has   bool // the message has a stamp
}

// take processes one frame. done reports whether the frame completed a message, whose values are then in tag, stamp and has.
func (d *deliveries) take(f amqp.Frame) (done bool, err error) {
	switch f.Type {
	case amqp.FrameMethod:
		return false, d.method(f.Payload)
	case amqp.FrameHeader:
		d.left, d.first, d.has = binary.BigEndian.Uint64(f.Payload[4:]), true, false // NextFrame has checked the length
		return d.left == 0, nil
	case amqp.FrameBody:
		return d.body(f.Payload)
	}
	return false, nil
}

// method reads the delivery tag at its fixed position: | class 2 | method 2 | consumer tag 1+n | delivery tag 8 | ...
func (d *deliveries) method(b []byte) error {
	if binary.BigEndian.Uint32(b) != uint32(amqp.ClassBasic)<<16|uint32(amqp.MethodBasicDeliver) {
		return complaint(b)
	}
	if len(b) < 5 || len(b) < 13+int(b[4]) {
		return fmt.Errorf("basic.deliver of %d bytes has no delivery tag", len(b))
	}
	d.tag = binary.BigEndian.Uint64(b[5+int(b[4]):])
	return nil
}

func (d *deliveries) body(b []byte) (done bool, err error) {
	if uint64(len(b)) > d.left {
		return false, fmt.Errorf("body frame of %d bytes where %d were left", len(b), d.left)
	}
	if d.first && len(b) >= stampSize {
		d.stamp, d.has = int64(binary.BigEndian.Uint64(b)), true
	}
	d.first = false
	d.left -= uint64(len(b))
	return d.left == 0, nil
}

// consumer reads deliveries from its own connection and measures the time since their stamps.
type consumer struct {
	c        *conn
	clock    clock
	ackEvery int64 // 0 = the broker does not expect acknowledgements

	d       deliveries
	unacked int64
	out     []byte // acknowledgements of one read, written at once

	got  atomic.Int64
	last atomic.Int64 // instant of the latest delivery

	latency *tally

	rejections *atomic.Int64 // left to make, shared by all consumers; nil = the scenario rejects none, and latencies are meaningful
	reject     amqp.BasicReject
}

// subscribe starts the consumers; the connection is then ready for run.
func (k *consumer) subscribe(prefetch int64, queues ...string) error {
	if prefetch > 0 {
		if _, err := ask[*amqp.BasicQosOK](k.c, channel, &amqp.BasicQos{PrefetchCount: uint16(prefetch)}); err != nil {
			return err
		}
	}
	for i, queue := range queues {
		m := &amqp.BasicConsume{Queue: queue, ConsumerTag: strconv.Itoa(i), NoAck: k.ackEvery == 0}
		if _, err := ask[*amqp.BasicConsumeOK](k.c, channel, m); err != nil {
			return fmt.Errorf("queue %s: %w", queue, err)
		}
	}
	return nil
}

// run consumes until the connection's read deadline, which stop sets.
func (k *consumer) run() error {
	err := k.c.serve(k.drain)
	if err == nil {
		err = k.settle()
	}
	if err != nil {
		return fmt.Errorf("consumer: %w", err)
	}
	return nil
}

// drain processes the frames that have arrived, and acknowledges their messages in one write.
func (k *consumer) drain() error {
	now := k.clock.now()
	n, err := k.measure(now)
	if n > 0 {
		k.last.Store(now) // before got, because readers read got first
		k.got.Add(n)
	}
	if err != nil || len(k.out) == 0 {
		return err
	}
	_, err = k.c.nc.Write(k.out)
	k.out = k.out[:0]
	return err
}

// measure processes the frames that have arrived, and counts the messages that are complete. Consecutive messages with the same stamp,
// which a write of the publisher produces, are recorded together.
func (k *consumer) measure(now int64) (n int64, err error) {
	k.latency.mu.Lock()
	defer k.latency.mu.Unlock()
	var stamp int64
	var run uint64
	for {
		f, ok, err := k.c.next()
		if err != nil || !ok {
			k.latency.h.record(now-stamp, run)
			return n, err
		}
		done, err := k.d.take(f)
		if err != nil {
			return n, err
		}
		if !done {
			continue
		}
		n++
		k.acknowledge()
		if !k.d.has || k.rejections != nil {
			continue
		}
		if k.d.stamp != stamp {
			k.latency.h.record(now-stamp, run)
			stamp, run = k.d.stamp, 0
		}
		run++
	}
}

func (k *consumer) acknowledge() {
	if k.ackEvery == 0 {
		return
	}
	if k.rejections != nil && k.rejections.Add(-1) >= 0 {
		k.reject.DeliveryTag = k.d.tag
		k.out = amqp.AppendMethod(k.out, channel, &k.reject)
		return
	}
	if k.unacked++; k.unacked < k.ackEvery {
		return
	}
	k.out = amqp.AppendAck(k.out, channel, k.d.tag, k.ackEvery > 1)
	k.unacked = 0
}

// settle acknowledges the messages since the last multiple of ackEvery.
func (k *consumer) settle() error {
	if k.unacked == 0 {
		return nil
	}
	k.unacked = 0
	_, err := k.c.nc.Write(amqp.AppendAck(nil, channel, k.d.tag, true))
	return err
}
