package game

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/campaign"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/policies"
	"github.com/curfewmq/curfew/sdk/hook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// game is a broker and its clients, and the model of both.
type game struct {
	seed    uint64
	step    int
	rng     *rand.Rand // of the step
	disk    *crashfs.FS
	b       *broker
	off     time.Duration // of the wall clock
	before  hook.Instant  // when the step began
	now     hook.Instant
	heardAt hook.Instant // when the broker was listened to last
	ended   hook.Instant // when the broker ended that was restarted in this step
	said    []string
	stopped error

	places      []*place // the queues, and the agenda
	queues      []*place
	agenda      *place
	messages    map[uint64]*message // that are somewhere, or on the way
	last        uint64
	channels    map[uint16]*channel
	published   uint64 // on channel 1
	unconfirmed map[uint64]*message
	transaction []*message
	fetched     *consumer

	full, emptied             bool // the disk
	restarted, crashed, midst bool
}

const stepsOfAGame = 2000

func TestCampaignQueues(t *testing.T) {
	first, failed := campaign.Number(t, "SIMULATION_SEED", 1), 0
	for seed := first; seed < first+campaign.Size(t, "SIMULATION_SEEDS", 0, 3) && failed < 3; seed++ {
		all := keptSteps(t)
		if _, why := play(t, seed, all); why != "" {
			all, said, why := shrink(t, seed, all, why)
			t.Errorf("seed %d: %s\n%s\nmake game SEED=%d STEPS=%s", seed, why, said, seed, all)
			failed++
		}
	}
}

// keptSteps returns the numbers of the steps to play.
func keptSteps(t *testing.T) (all []int) {
	t.Helper()
	if text := os.Getenv("GAME_STEPS"); text != "" {
		for s := range strings.SplitSeq(text, ",") {
			n, err := strconv.Atoi(s)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, n)
		}
		return all
	}
	for n := range int(campaign.Number(t, "GAME_LENGTH", stepsOfAGame)) {
		all = append(all, n+1)
	}
	return all
}

// shrink leaves out steps as long as the game fails.
func shrink(t *testing.T, seed uint64, all []int, why string) (kept, said, whyNow string) {
	t.Helper()
	g, _ := play(t, seed, all)
	if i := slices.Index(all, g.step); i >= 0 {
		all = all[:i+1]
	}
	tries := 300
	for size := len(all) / 2; size > 0; size /= 2 {
		for at := 0; at < len(all) && tries > 0; tries-- {
			fewer := slices.Concat(all[:at], all[min(at+size, len(all)):])
			if f, whyNow := play(t, seed, fewer); whyNow != "" {
				all, why, g = fewer, whyNow, f
				continue
			}
			at += size
		}
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(all), " ", ","), "[]"), strings.Join(g.said, "\n"), why
}

// play plays a game, and returns what was wrong with it.
func play(t *testing.T, seed uint64, all []int) (g *game, why string) {
	t.Helper()
	procs, collect := runtime.GOMAXPROCS(1), debug.SetGCPercent(-1) // so that a seed does the same again
	defer func() {
		runtime.GOMAXPROCS(procs)
		debug.SetGCPercent(collect)
	}()
	runtime.GC()
	synctest.Test(t, func(*testing.T) {
		g = &game{seed: seed, disk: crashfs.New(seed), messages: map[uint64]*message{}, unconfirmed: map[uint64]*message{}}
		defer func() {
			if p := recover(); p != nil {
				b, ok := p.(breach)
				if !ok {
					b = breach(fmt.Sprintf("%v\n%s", p, debug.Stack()))
				}
				why = string(b)
			}
			g.disk.LosePower()
			_ = g.b.end(true)
		}()
		g.begin()
		for _, n := range all {
			g.take(n)
		}
		g.drain()
	})
	return g, why
}

func (g *game) begin() {
	g.rng = rand.New(rand.NewPCG(g.seed, 0))
	b, err := open(g.disk, 0)
	if g.b = b; err != nil {
		g.fail("%v", err)
	}
	g.layout()
	g.before = b.clock()
	g.declare(nil)
	g.listen()
	g.judge()
}

// take plays a step, the random numbers of which follow from the seed and its number, whichever steps were left out.
func (g *game) take(n int) {
	g.step, g.rng = n, rand.New(rand.NewPCG(g.seed, uint64(n)))
	if said := g.act(); said != "" {
		g.said = append(g.said, fmt.Sprintf("%d: %s", n, said))
	}
	g.listen()
	g.judge()
	if g.emptied {
		g.full, g.emptied = false, false
	}
}

// drain has consumers take all messages, and fails if some stay.
func (g *game) drain() {
	g.step++ // whichever was the last
	if g.full {
		g.empty()
	}
	_, _ = g.b.vhost.ClearPolicy(policies.User, "policy")
	for _, p := range g.queues {
		p.changed = true
	}
	for n := range uint16(6) {
		g.b.say(n+1, &amqp.ChannelClose{ReplyCode: 200})
		g.leave(g.channels[n+1])
		g.openChannel(n + 1)
		g.listen()
	}
	g.published = 0
	g.declare(nil)
	g.listen()
	g.judge()
	g.full = false
	for _, p := range g.queues {
		k := &consumer{tag: "last-" + p.name, from: p, noAck: true}
		g.channels[3].consumers = append(g.channels[3].consumers, k)
		g.b.say(3, &amqp.BasicConsume{Queue: p.name, ConsumerTag: k.tag, NoAck: true})
	}
	for range 50 {
		time.Sleep(10 * time.Second)
		g.listen()
		g.judge()
	}
	for _, p := range g.places {
		for i, s := range p.line {
			if s.state != queue.MessageLeaving { // no queue may take it, at least once
				g.fail("%v is %v, and does not leave", g.messages[p.ids[i]], s)
			}
		}
	}
}
