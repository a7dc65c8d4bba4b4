package session

import (
	"bytes"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/block"
	"github.com/curfewmq/curfew/core/queue"
)

// fed feeds frames in a block like a reader, which continues in the same block unless it is shared. It returns the block.
func (p *probe) fed(b []byte) *block.Block {
	p.t.Helper()
	k := block.New(len(b))
	if n := p.conn.Feed(p.now, k, k.Buf[:copy(k.Buf, b)]); n != len(b) {
		p.t.Fatalf("%d bytes of %d were taken", n, len(b))
	}
	if !k.Shared() {
		clear(k.Buf)
	}
	return k
}

// A body is written from the block that it lies in, which is retained until then. If an empty body frame came first, the block for
// bodies of several frames was retained instead, and the next read overwrote the body.
func TestTheBlockOfABodyIsRetained(t *testing.T) {
	const frameMax = 128 << 10
	body := bytes.Repeat([]byte("body"), queue.WorthHolding/4)
	head := amqp.AppendContentHeader(amqp.AppendMethod(nil, 1, &amqp.BasicPublish{RoutingKey: "q"}), 1, uint64(len(body)), []byte{0, 0})
	empty := append(amqp.AppendBodyHead(nil, 1, 0), amqp.FrameEnd)
	whole := amqp.AppendBody(nil, 1, body, frameMax)
	commit := amqp.AppendMethod(nil, 1, &amqp.TxCommit{})
	for _, tc := range []struct {
		name  string
		tx    bool
		feeds [][]byte
		holds []bool // whether the block of a feed is held after the last one
	}{
		{"a frame", false, [][]byte{head, whole}, []bool{false, true}},
		{"all at once", false, [][]byte{append(bytes.Clone(head), whole...)}, []bool{true}},
		{"a frame of no bytes first", false, [][]byte{head, empty, whole}, []bool{false, false, true}},
		{"frames of no bytes around it", false, [][]byte{head, append(append(empty, empty...), whole...)}, []bool{false, true}},
		{"two frames", false, [][]byte{head, amqp.AppendBody(nil, 1, body[:9000], frameMax), amqp.AppendBody(nil, 1, body[9000:], frameMax)}, []bool{false, false, false}},
		{"a transaction", true, [][]byte{head, whole, commit}, []bool{false, false, false}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newProbe(t).open().channel(1).channel(2)
			p.queue(1, "q")
			do[*amqp.BasicConsumeOK](p, 2, &amqp.BasicConsume{Queue: "q", NoAck: true})
			if tc.tx {
				do[*amqp.TxSelectOK](p, 1, &amqp.TxSelect{})
			}
			var blocks []*block.Block
			for _, b := range tc.feeds {
				blocks = append(blocks, p.fed(b))
			}
			for i, k := range blocks {
				if k.Shared() != tc.holds[i] {
					t.Errorf("the block of feed %d is held: %t", i, k.Shared())
				}
			}
			p.feed(nil)
			expect[*amqp.BasicDeliver](p, 2)
			if _, got := p.content(2); got != string(body) {
				t.Error("the body is another")
			}
			for i, k := range blocks {
				if k.Shared() {
					t.Errorf("the block of feed %d is held after all was written", i)
				}
				k.Release()
			}
		})
	}
}
