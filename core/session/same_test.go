package session

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
)

// A client sees the same results whether its queues are in memory or on a disk, and whether or not the broker was restarted in between, in
// good order or after a power failure, apart from the end of its connection.
func TestQueuesAreTheSameInMemoryAndOnDisk(t *testing.T) {
	for seed := range uint64(6 / fewer) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			want := playRandomly(t, seed, &inMemory{})
			for _, tc := range []struct {
				name  string
				home  home
				marks bool // it is known which messages were delivered
			}{
				{"on disk", &onDiskHome{disk: crashfs.New(seed)}, true},
				{"restarted", &onDiskHome{disk: crashfs.New(seed), restart: (*onDiskHome).stop}, true},
				{"without power", &onDiskHome{disk: crashfs.New(seed), restart: (*onDiskHome).losePower}, false},
			} {
				got := playRandomly(t, seed, tc.home)
				if len(got) != len(want) {
					t.Fatalf("%s: %d steps, want %d", tc.name, len(got), len(want))
				}
				for i := range want {
					if got[i].what != want[i].what || tc.marks && got[i].again != want[i].again {
						t.Fatalf("%s, step %d: got %v, want %v after %v", tc.name, i, got[i], want[i], want[max(0, i-5):i])
					}
				}
			}
		})
	}
}

// sight is one thing that a client sees.
type sight struct {
	what  string
	again bool // it is marked as redelivered
}

// home is where a broker keeps its queues.
type home interface {
	// start returns a client of a new broker, which finds the data of the last one.
	start(t *testing.T) *probe
	// pause ends the client's connection, and maybe the broker.
	pause(t *testing.T) *probe
}

type inMemory struct {
	server *Server
	client *probe
}

func (h *inMemory) start(t *testing.T) *probe {
	t.Helper()
	if h.server == nil {
		h.server = testServer(t)
	}
	h.client = probeOf(t, h.server, Peer{}).open().channel(1)
	return h.client
}

func (h *inMemory) pause(t *testing.T) *probe {
	t.Helper()
	h.client.conn.Release(h.client.now)
	return h.start(t)
}

type onDiskHome struct {
	disk    *crashfs.FS
	probe   *diskProbe
	restart func(h *onDiskHome, t *testing.T) // nil: never
}

func (h *onDiskHome) start(t *testing.T) *probe {
	t.Helper()
	h.probe = onDisk(t, h.disk)
	t.Cleanup(h.probe.end)
	h.probe.channel(1)
	return h.probe.probe
}

func (h *onDiskHome) pause(t *testing.T) *probe {
	t.Helper()
	if h.restart == nil {
		h.probe.conn.Release(h.probe.now)
		p := probeOf(t, h.probe.conn.srv, Peer{}).open().channel(1)
		h.probe.probe = p
		return p
	}
	h.restart(h, t)
	return h.start(t)
}

func (h *onDiskHome) stop(t *testing.T) {
	t.Helper()
	h.probe.conn.Release(h.probe.now)
	if err := h.probe.store.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (h *onDiskHome) losePower(*testing.T) {
	h.probe.sync()
	h.disk = h.disk.LosePower()
	h.probe.end()
}

// playRandomly uses a few queues at random and returns the results.
func playRandomly(t *testing.T, seed uint64, h home) []sight {
	t.Helper()
	g := &game{probe: h.start(t), rng: rand.New(rand.NewPCG(seed, 1))}
	for n := range 3 {
		g.declare(g.name(n))
	}
	for range 600 {
		if g.rng.IntN(60) == 0 {
			g.probe, g.tags = h.pause(t), nil
			g.tx = false
			g.see("pause")
			continue
		}
		g.step()
	}
	for n := range 3 {
		for g.get(g.name(n), true) {
		}
	}
	return g.seen
}

// game is a client that does random things.
type game struct {
	*probe
	rng  *rand.Rand
	seen []sight
	tags []uint64 // of the messages that it holds
	last int      // message
	tx   bool     // channel 1 is transactional
}

func (g *game) see(format string, args ...any) {
	g.seen = append(g.seen, sight{what: fmt.Sprintf(format, args...)})
}

func (g *game) name(n int) string { return "q" + strconv.Itoa(n) }

func (g *game) declare(name string) {
	args := amqp.Table{{Key: "x-max-priority", Value: int32(2)}}
	if name == g.name(0) {
		args = nil
	}
	m := do[*amqp.QueueDeclareOK](g.probe, 1, &amqp.QueueDeclare{Queue: name, Durable: true, Arguments: args})
	g.see("%s has %d", name, m.MessageCount)
}

func (g *game) step() {
	name := g.name(g.rng.IntN(3))
	switch n := g.rng.IntN(100); {
	case n < 40:
		g.flood(name)
	case n < 65:
		g.get(name, g.rng.IntN(4) == 0)
	case n < 85:
		g.answer()
	case n < 88:
		g.see("%s: purged %d", name, do[*amqp.QueuePurgeOK](g.probe, 1, &amqp.QueuePurge{Queue: name}).MessageCount)
	case n < 90 && !g.tx:
		g.see("%s: deleted %d", name, do[*amqp.QueueDeleteOK](g.probe, 1, &amqp.QueueDelete{Queue: name}).MessageCount)
		g.declare(name)
	case n < 92 && !g.tx:
		do[*amqp.TxSelectOK](g.probe, 1, &amqp.TxSelect{})
		g.tx = true
	case g.tx && n < 98:
		g.commit(1)
	case g.tx:
		g.rollback(1)
		g.tags = nil // these messages stay unacknowledged until the connection ends
	default:
		g.declare(name)
	}
}

// flood publishes one message or many.
func (g *game) flood(name string) {
	n := 1
	if g.rng.IntN(20) == 0 {
		n = 500
	}
	var ms []published
	for range n {
		g.last++
		m := kept(name, strconv.Itoa(g.last))
		m.props.Priority = uint8(g.rng.IntN(4))
		m.props.Set(amqp.PropPriority)
		ms = append(ms, m)
	}
	g.publish(1, ms...)
}

func (g *game) get(name string, noAck bool) bool {
	g.send(1, &amqp.BasicGet{Queue: name, NoAck: noAck})
	_, m := g.method()
	got, ok := m.(*amqp.BasicGetOK)
	if !ok {
		g.see("%s is empty", name)
		return false
	}
	_, body := g.content(1)
	g.see("%s: got %s, %d more", name, body, got.MessageCount)
	g.seen[len(g.seen)-1].again = got.Redelivered
	if !noAck {
		g.tags = append(g.tags, got.DeliveryTag)
	}
	return true
}

// answer settles one of the messages it holds.
func (g *game) answer() {
	if len(g.tags) == 0 {
		return
	}
	i := g.rng.IntN(len(g.tags))
	tag := g.tags[i]
	g.tags = slices.Delete(g.tags, i, i+1)
	switch g.rng.IntN(4) {
	case 0:
		g.send(1, &amqp.BasicNack{DeliveryTag: tag, Requeue: true})
	case 1:
		g.send(1, &amqp.BasicReject{DeliveryTag: tag})
	default:
		g.send(1, &amqp.BasicAck{DeliveryTag: tag})
	}
}

var (
	_ home = (*inMemory)(nil)
	_ home = (*onDiskHome)(nil)
)
