package bench

import (
	"encoding/binary"
	"strconv"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
)

// published is a message as read back from the wire.
type published struct {
	publish amqp.BasicPublish
	props   amqp.Properties
	body    []byte
	frames  int // of the body
}

func readBack(t *testing.T, buf []byte) (ms []published) {
	t.Helper()
	for len(buf) > 0 {
		f, n, err := amqp.NextFrame(buf, frameMax)
		if err != nil || n == 0 {
			t.Fatalf("%d bytes left over: %v", len(buf), err)
		}
		if f.Channel != channel {
			t.Fatalf("frame on channel %d, want %d", f.Channel, channel)
		}
		buf = buf[n:]
		switch f.Type {
		case amqp.FrameMethod:
			m, err := amqp.ParseMethod(f.Payload)
			if err != nil {
				t.Fatal(err)
			}
			ms = append(ms, published{publish: *m.(*amqp.BasicPublish)})
		case amqp.FrameHeader:
			h, err := amqp.ParseContentHeader(f.Payload)
			if err != nil {
				t.Fatal(err)
			}
			m := &ms[len(ms)-1]
			if m.props, err = amqp.ParseProperties(h.Props); err != nil {
				t.Fatal(err)
			}
			m.body = make([]byte, 0, h.BodySize)
		case amqp.FrameBody:
			m := &ms[len(ms)-1]
			m.body = append(m.body, f.Payload...)
			m.frames++
		}
	}
	return ms
}

func TestTemplateIsWhatItSays(t *testing.T) {
	cases := []struct {
		name   string
		in     content
		frames int
		stamps bool
	}{
		{name: "small", in: content{keys: []string{"a", "bb", "ccc"}, size: 16, ttl: -1, frameMax: 4096}, frames: 1, stamps: true},
		{name: "just a stamp", in: content{keys: []string{"a"}, size: 8, ttl: -1, frameMax: 4096, persistent: true}, frames: 1, stamps: true},
		{name: "no room for a stamp", in: content{keys: []string{"a"}, size: 7, ttl: -1, frameMax: 4096}, frames: 1},
		{name: "empty", in: content{keys: []string{"a"}, ttl: -1, frameMax: 4096, mandatory: true}},
		{name: "several frames", in: content{keys: []string{"a", "b"}, size: 10_000, ttl: -1, frameMax: 4096}, frames: 3, stamps: true},
		{name: "larger than a write", in: content{keys: []string{"a"}, size: writeSize + 1, batch: 64, ttl: -1, frameMax: frameMax}, frames: 3, stamps: true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			tm := newTemplate(c.in)
			const at = 1_700_000_000_123_456_789
			tm.stamp(0, tm.len(), at)
			ms := readBack(t, tm.run(0, tm.len()))
			if len(ms) != tm.len() || tm.len()%len(c.in.keys) != 0 || tm.batch < 1 {
				t.Fatalf("%d messages, template says %d in batches of %d for %d queues", len(ms), tm.len(), tm.batch, len(c.in.keys))
			}
			for i, m := range ms {
				if m.publish.Exchange != "" || m.publish.RoutingKey != c.in.keys[i%len(c.in.keys)] || m.publish.Mandatory != c.in.mandatory {
					t.Fatalf("message %d: %+v", i, m.publish)
				}
				if len(m.body) != c.in.size || m.frames != c.frames {
					t.Fatalf("message %d: %d bytes in %d frames, want %d in %d", i, len(m.body), m.frames, c.in.size, c.frames)
				}
				if got := m.props.DeliveryMode == 2; got != c.in.persistent || m.props.Has(amqp.PropExpiration) {
					t.Fatalf("message %d: properties %+v", i, m.props)
				}
				if c.stamps && binary.BigEndian.Uint64(m.body) != at {
					t.Fatalf("message %d: stamp %d, want %d", i, binary.BigEndian.Uint64(m.body), at)
				}
			}
		})
	}
}

func TestTemplateBatches(t *testing.T) {
	cases := []struct {
		name  string
		in    content
		batch int
		whole bool // the ring consists of whole batches
	}{
		{name: "one each", in: content{keys: []string{"a"}, size: 16, batch: 1}, batch: 1, whole: true},
		{name: "as many as were asked for", in: content{keys: []string{"a"}, size: 1024, batch: 64}, batch: 64, whole: true},
		{name: "with several queues", in: content{keys: []string{"a", "b", "c"}, size: 1024, batch: 64}, batch: 64, whole: true},
		{name: "with more queues than messages", in: content{keys: make([]string, 300), size: 100, batch: 16}, batch: 16, whole: true},
		{name: "as many as fit", in: content{keys: []string{"a"}, size: 60 << 10, batch: 64}, batch: 4, whole: true},
		{name: "large ones by themselves", in: content{keys: []string{"a"}, size: 1 << 20, batch: 64}, batch: 1, whole: true},
		{name: "a ring that would be too large", in: content{keys: make([]string, 61), size: 4000, batch: 64}, batch: 64},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.in.ttl, c.in.frameMax = -1, frameMax
			tm := newTemplate(c.in)
			if tm.batch != c.batch || tm.len()%len(c.in.keys) != 0 || (tm.len()%tm.batch == 0) != c.whole {
				t.Errorf("a ring of %d in batches of %d for %d queues, want batches of %d", tm.len(), tm.batch, len(c.in.keys), c.batch)
			}
		})
	}
}

func TestTemplateRunsAreWholeMessages(t *testing.T) {
	tm := newTemplate(content{keys: []string{"a", "bb"}, size: 9, ttl: -1, frameMax: 4096})
	ms := readBack(t, tm.run(3, 4))
	if len(ms) != 4 || ms[0].publish.RoutingKey != "bb" {
		t.Errorf("run(3, 4) = %d messages, first for %q, want 4, first for bb", len(ms), ms[0].publish.RoutingKey)
	}
}

func TestExpirationsAreDrawnAndDeadlinesFollow(t *testing.T) {
	const at = 1_000_000_000_000
	cases := []struct {
		name string
		ttl  int64
		due  bool
	}{
		{name: "stamped with the send time", ttl: -1},
		{name: "stamped with the deadline", ttl: -1, due: true},
		{name: "the queue's TTL caps it", ttl: 300, due: true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			tm := newTemplate(content{
				keys: []string{"a"}, size: 8, frameMax: 4096, ttl: c.ttl, due: c.due, expiration: span{lo: 100, hi: 500, set: true},
			})
			tm.stamp(0, tm.len(), at)
			seen := make(map[int64]bool)
			for _, m := range readBack(t, tm.run(0, tm.len())) {
				ms, err := strconv.ParseInt(m.props.Expiration, 10, 64)
				if err != nil || ms < 100 || ms > 500 {
					t.Fatalf("expiration %q, want 100 to 500", m.props.Expiration)
				}
				seen[ms] = true
				want := int64(at)
				if c.due && c.ttl >= 0 {
					ms = min(ms, c.ttl)
				}
				if c.due {
					want += ms * int64(time.Millisecond)
				}
				if got := int64(binary.BigEndian.Uint64(m.body)); got != want {
					t.Fatalf("stamp %d, want %d", got, want)
				}
			}
			if len(seen) != 401 {
				t.Errorf("%d different expirations, want all 401", len(seen))
			}
		})
	}
}
