package wire

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/wlog"
)

// restless is a client that connects to the front again and again while its vhost changes owners, like libraries with automatic recovery.
// It always gets an answer in time, or a connection.close.
type restless struct {
	t      *testing.T
	p      *pair
	random *rand.Rand
	opened int
	told   map[uint16]int // received connection.close, by reply code
}

// live connects until the time is over.
func (r *restless) live(until time.Time) {
	for time.Now().Before(until) {
		near, far := net.Pipe()
		r.p.front.serve(far)
		r.connection(newClient(r.t, near))
		near.Close()
	}
}

// connection uses one connection until it ends.
func (r *restless) connection(c *client) {
	r.t.Helper()
	c.login(uint16(r.random.IntN(3)*10), "/")
	if !r.awaits(c, &amqp.ConnectionOpenOK{}) {
		return
	}
	r.opened++
	if !r.asks(c, 1, &amqp.ChannelOpen{}, &amqp.ChannelOpenOK{}) {
		return
	}
	for range r.random.IntN(20) {
		if !r.asks(c, 1, &amqp.QueueDeclare{Queue: "q" + strconv.Itoa(r.random.IntN(5))}, &amqp.QueueDeclareOK{}) {
			return
		}
		time.Sleep(time.Duration(r.random.IntN(1000)) * time.Millisecond)
	}
	if r.random.IntN(2) == 0 { // the others only close their socket
		r.asks(c, 0, &amqp.ConnectionClose{ReplyCode: 200}, &amqp.ConnectionCloseOK{})
	}
}

// asks sends a method, and reports whether the answer came.
func (r *restless) asks(c *client, channel uint16, m, answer amqp.Method) bool {
	r.t.Helper()
	if _, err := c.socket.Write(amqp.AppendMethod(nil, channel, m)); err != nil {
		r.t.Error("the socket was closed before connection.close")
		return false
	}
	return r.awaits(c, answer)
}

// awaits reads up to an answer. It answers connection.close, the only other permitted end.
func (r *restless) awaits(c *client, answer amqp.Method) bool {
	r.t.Helper()
	const most = ownerWait + closeTimeout
	limit := time.After(most)
	for {
		var f amqp.Frame
		select {
		case f = <-c.frames:
		case <-limit:
			r.t.Errorf("no answer after %v, want %T", most, answer)
			return false
		}
		if f.Type == amqp.FrameHeartbeat {
			continue
		}
		m, err := amqp.ParseMethod(f.Payload)
		if err != nil {
			r.t.Errorf("got %+v, %v; want %T", f, err, answer)
			return false
		}
		if m.Name() == answer.Name() {
			return true
		}
		end, ok := m.(*amqp.ConnectionClose)
		if !ok {
			r.t.Errorf("got %T, want %T", m, answer)
			return false
		}
		r.told[end.ReplyCode]++
		c.send(0, &amqp.ConnectionCloseOK{})
		_, asked := answer.(*amqp.ConnectionCloseOK)
		r.ends(c, asked)
		return false
	}
}

// ends reads up to the end, which comes at once. The only frame before it may be connection.close-ok, if the client has sent connection.close.
func (r *restless) ends(c *client, asked bool) {
	r.t.Helper()
	wantElapsed(r.t, 0, func() {
		for f := range c.frames {
			if m, err := amqp.ParseMethod(f.Payload); err != nil || !asked || m.Name() != "connection.close-ok" {
				r.t.Errorf("got %+v behind connection.close", f)
			}
		}
	})
}

// change gives the vhost another owner, or ends a stream. The previous owner ends its clients' connections, as if a real vhost
// moved.
func (p *pair) change(random *rand.Rand) {
	if random.IntN(3) == 0 {
		p.cut()
		return
	}
	to := wlog.NodeID(random.IntN(4)) // nobody, the front, the owner, or a node that does not answer
	p.move(to)
	for node, s := range map[wlog.NodeID]*Server{frontNode: p.front, ownerNode: p.owner} {
		if node == to || random.IntN(4) == 0 { // it may not know yet
			continue
		}
		for _, c := range s.OpenConns() {
			c.Session().Evict("vhost '/' is not served by this node any more")
		}
	}
}

func TestOwnersChange(t *testing.T) {
	games := uint64(6 / fewer)
	if testing.Short() {
		games = 2
	}
	opened, told := 0, map[uint16]int{}
	for seed := range games {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t)
			var clients sync.WaitGroup
			until := time.Now().Add(5 * time.Minute)
			all := make([]*restless, 10)
			for i := range all {
				r := &restless{t: t, p: p, random: rand.New(rand.NewPCG(seed, uint64(i))), told: map[uint16]int{}}
				all[i] = r
				clients.Go(func() { r.live(until) })
			}
			random := rand.New(rand.NewPCG(seed, 1000))
			for time.Now().Before(until) {
				time.Sleep(time.Duration(random.IntN(8000)) * time.Millisecond)
				p.change(random)
			}
			clients.Wait()
			time.Sleep(time.Minute)
			synctest.Wait()
			if f, o, r := p.front.Connections(), p.owner.Connections(), p.front.RelayTotals(); f != 0 || o != 0 || r.Open != 0 {
				t.Errorf("seed %d: %d connections at the front, %d at the owner, %d relayed", seed, f, o, r.Open)
			}
			if held := p.front.relays.buffered.Load(); held != 0 {
				t.Errorf("seed %d: %d bytes of buffers count as held", seed, held)
			}
			for _, r := range all {
				opened += r.opened
				for code, n := range r.told {
					told[code] += n
				}
			}
		})
	}
	if opened == 0 || told[amqp.ReplyConnectionForced] == 0 || told[amqp.ReplyInternalError] == 0 {
		t.Errorf("%d connections were opened, and ended by %v: want some, for each reason", opened, told)
	}
	t.Logf("%d connections, ended by %v", opened, told)
}
