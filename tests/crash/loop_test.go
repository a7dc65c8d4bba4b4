package crash

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/campaign"
	"github.com/curfewmq/curfew/tests/process"
)

// The environment sets how often the broker is started, in both tests together, and the seed of a run that is to be repeated. What
// the clients do and when the broker ends follows from the seed; how far they get until then does not.
const (
	cyclesVariable = "CRASH_CYCLES"
	seedVariable   = "CRASH_SEED"
)

// rounds is after how many cycles everything is drained, and the ledger starts afresh.
const rounds = 25

// With one log, a message that moves is in one place at any time.
func TestCampaignCrashOneLog(t *testing.T) { newLoop(t, 1, 10).run() }

// With several, a crash may leave it in two places, but never in none.
func TestCampaignCrashManyLogs(t *testing.T) { newLoop(t, 3, 10).run() }

// loop is one broker after the other on the same data directory.
type loop struct {
	*testing.T
	ledger *ledger
	layout *layout
	clerks []*clerk
	agenda []*secretary
	dir    string
	shards int
	seed   uint64
	random *rand.Rand
	cycles int
	busy   time.Duration    // how long the clients are at work at most, before the broker ends
	broker *process.Process // running, or the last one; nil for a cluster
	gate   *gate            // of the clients of this life
	end    func()           // ends a life, while clients are at work

	brokers brokers
}

// brokers are what clients connect to: one broker, or the nodes of a cluster.
type brokers interface {
	// start starts what does not run, and waits until it serves.
	start()
	// url is where the next client connects to.
	url() string
	// management is the address of a management API that answers for all of them.
	management() string
	// kill ends all of them, and stop does so as an operator would.
	kill()
	stop()
}

// single is one broker after the other.
type single struct{ *loop }

func (s single) start()             { s.broker = process.Start(s.T, s.configuration(), "--data", s.dir) }
func (s single) url() string        { return s.broker.URL() }
func (s single) management() string { return s.broker.Management }
func (s single) kill()              { s.broker.Kill() }
func (s single) stop()              { s.broker.Stop() }

// newLoop makes one of two loops that start the broker as often, together, as CRASH_CYCLES says, or short times.
func newLoop(t *testing.T, shards int, short uint64) *loop {
	t.Helper()
	return newLoopOf(t, shards, int(campaign.Size(t, cyclesVariable, 0, short)+1)/2)
}

func newLoopOf(t *testing.T, shards, cycles int) *loop {
	t.Helper()
	t.Parallel()
	l := &loop{
		T: t, ledger: newLedger(shards == 1), layout: newLayout(), shards: shards, cycles: cycles, busy: 700 * time.Millisecond,
		clerks: []*clerk{{queue: "clerk.1"}, {queue: "clerk.2"}},
		agenda: []*secretary{newSecretary("agenda.1", shards == 1), newSecretary("agenda.2", shards == 1)},
		seed:   campaign.Number(t, seedVariable, rand.Uint64()),
	}
	l.end, l.brokers = l.finish, single{l}
	l.random = rand.New(rand.NewPCG(l.seed, uint64(shards)))
	t.Logf("%s=%d", seedVariable, l.seed)
	l.makeDir()
	return l
}

// makeDir makes the data directory, which stays when the test fails.
func (l *loop) makeDir() {
	var err error
	if l.dir, err = os.MkdirTemp("", "curfew-crash-"); err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() {
		if l.Failed() {
			l.Logf("the data directory is %s", l.dir)
			return
		}
		_ = os.RemoveAll(l.dir) // a folder below the system's temporary one
	})
}

func (l *loop) run() {
	l.begin()
	for n := range l.cycles {
		l.cycle()
		if l.broken() {
			break
		}
		if (n+1)%rounds == 0 {
			l.drain()
		}
	}
	if !l.broken() {
		l.drain()
	}
	l.report()
}

func (l *loop) report() {
	for i, text := range l.ledger.breaches[:min(len(l.ledger.breaches), 10)] {
		l.Errorf("breach %d of %d: %s", i+1, len(l.ledger.breaches), text)
	}
	l.Logf("%d lives, %+v", l.ledger.life, l.ledger.counts)
}

func (l *loop) broken() bool {
	l.ledger.mu.Lock()
	defer l.ledger.mu.Unlock()
	return len(l.ledger.breaches) > 0
}

// begin starts a broker.
func (l *loop) begin() {
	l.ledger.begin()
	l.open()
}

// open lets clients in.
func (l *loop) open() {
	l.gate = &gate{}
	l.brokers.start()
	c := l.client(0)
	defer c.close()
	if err := l.layout.declare(c.Channel); err != nil {
		l.Fatal(err)
	}
}

// configuration varies what must not matter. A machine that stands still for a while is no reason to close connections.
func (l *loop) configuration() string {
	durability := []string{"fsync", "flush"}[l.random.IntN(2)]
	bodies := []string{"256MiB", "16MiB"}[l.random.IntN(2)]
	const patient = "limits: {heartbeat: 0s, handshake-timeout: 10m}"
	return fmt.Sprintf("data: {shards: %d}\ndurability: %s\nmemory: {bodies: %s}\n%s\n", l.shards, durability, bodies, patient)
}

// client connects a client to the broker, which runs.
func (l *loop) client(number int) *client {
	c, err := dial(l.ledger, l.gate, l.brokers.url(), number, l.randomFor(number))
	if err != nil {
		l.Fatal(err)
	}
	return c
}

func (l *loop) randomFor(client int) *rand.Rand {
	return rand.New(rand.NewPCG(l.seed, uint64(l.ledger.life)<<32|uint64(l.shards)<<16|uint64(client)))
}

// cycle has clients at work, ends the broker, and starts it again.
func (l *loop) cycle() {
	if l.random.IntN(10) < 4 {
		l.census(30, l.random.IntN(2) == 0)
	}
	work := l.startClients()
	time.Sleep(20*time.Millisecond + time.Duration(l.random.Int64N(int64(l.busy))))
	l.end()
	work.Wait()
	if l.broker == nil {
		l.ledger.resume()
		l.open()
		return
	}
	for l.random.IntN(5) == 0 {
		l.stumble()
	}
	l.begin()
}

// finish ends the broker in one of several ways.
func (l *loop) finish() {
	switch n := l.random.IntN(20); {
	case n < 2:
		l.ledger.end()
		l.broker.Stop()
	case n < 4:
		l.ledger.end()
		l.broker.Signal(syscall.SIGTERM)
		time.Sleep(time.Duration(l.random.IntN(20)) * time.Millisecond)
		l.broker.Kill()
	case n < 8:
		l.broker.Kill()
		time.Sleep(time.Duration(l.random.IntN(300)) * time.Millisecond) // time goes on while the broker is down
	default:
		l.broker.Kill()
	}
}

// stumble kills a broker that may be recovering.
func (l *loop) stumble() {
	l.ledger.begin()
	l.broker = process.Launch(l.T, l.configuration(), "--data", l.dir)
	time.Sleep(time.Duration(l.random.IntN(200)) * time.Millisecond)
	l.broker.Kill()
}

// job is what a client does until the broker is gone.
type job func(c *client) error

// jobs are what clients do in this life. The same client has the same number in all of them.
func (l *loop) jobs() map[int]job {
	jobs := map[int]job{
		1: func(c *client) error { return publisher(c, l.layout) },
		2: func(c *client) error { return publisher(c, l.layout) },
		3: func(c *client) error { return transactor(c, l.layout) },
	}
	for i, k := range l.clerks {
		jobs[10+i] = k.work
	}
	for i, s := range l.agenda {
		jobs[14+i] = s.work
	}
	for _, p := range l.layout.places {
		if p.redriven {
			management := l.brokers.management() // random, which the clients' goroutines have their own of
			jobs[18] = func(c *client) error { return redriver(c, management, p.dead) }
		}
	}
	var attended []*place
	for _, p := range l.layout.places {
		if p.attended {
			attended = append(attended, p)
		}
	}
	for i, p := range l.layout.places {
		for n := range 2 {
			if p.attended && l.random.IntN(10) < 6 {
				jobs[20+2*i+n] = func(c *client) error { return consume(c, p, attended) }
			}
		}
	}
	return jobs
}

func (l *loop) startClients() *sync.WaitGroup {
	work := &sync.WaitGroup{}
	for number, do := range l.jobs() {
		c := l.client(number)
		work.Go(func() {
			_ = do(c) // it always ends with an error; the ledger knows what matters
			c.close()
		})
	}
	return work
}

// census takes stock of the broker.
func (l *loop) census(share int, proved bool) {
	c := l.client(5)
	defer c.close()
	if err := takeCensus(c, l.layout, share, proved); err != nil {
		l.Errorf("census: %v", err)
	}
}

// keepAppointments has the secretaries wait for everything that is to come.
func (l *loop) keepAppointments() {
	for i, s := range l.agenda {
		c := l.client(14 + i)
		if err := s.finish(c); err != nil {
			l.Errorf("%s: %v", s.name, err)
		}
		c.close()
	}
}

// drain acknowledges everything there is, and sees to it that nothing comes back.
func (l *loop) drain() {
	time.Sleep(l.ledger.pending())
	l.keepAppointments()
	l.census(100, true)
	l.brokers.kill()
	l.begin()
	l.census(100, false)
	l.brokers.stop()
	l.ledger.ended()
	l.begin()
	l.census(100, false)
	if l.broken() {
		return
	}
	l.ledger.retire()
	l.brokers.stop()
	l.begin()
}
