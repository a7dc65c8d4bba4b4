package quorum

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// ping sends the shards' times between all nodes, each second.
func (c *trio) ping(seconds int) {
	for range seconds {
		times := map[wlog.NodeID][]ShardTime{}
		for from, e := range c.nodes {
			times[from] = e.Times()
		}
		time.Sleep(time.Millisecond)
		for to, e := range c.nodes {
			for from, all := range times {
				if from != to {
					e.Heard(from, all)
				}
			}
		}
		time.Sleep(time.Second - time.Millisecond)
	}
}

// shardTime returns a shard's time at its owner.
func (c *trio) shardTime(id wlog.NodeID, l wlog.Log) hook.Instant {
	return c.nodes[id].options.Clock() + hook.Instant(l.Offset())
}

// Nodes' clocks are seconds apart. A shard's time continues through any number of owners. It is never ahead of the former time, and late
// only by the delay of a message and the margin.
func TestTimeGoesOn(t *testing.T) {
	inTrio(t, func(c *trio) {
		id := c.owner(0)
		l := c.open(0, id)
		zero, began := c.shardTime(id, l), time.Now()
		late := time.Duration(0)
		for turn, to := range []wlog.NodeID{2, 3, 1, 3, 2, 1} {
			if turn%2 == 0 {
				c.ping(3)
			} else {
				c.write(l, 1, 3) // entries state the time, too
			}
			if err := c.nodes[id].Transfer(c.Context(), 0, to); err != nil {
				t.Fatal(err)
			}
			if id = c.owner(0); id != to {
				t.Fatalf("owned by node %d", id)
			}
			l = c.open(0, id)
			now := time.Duration(c.shardTime(id, l)-zero) - time.Since(began)
			if now > -late || now < -late-5*time.Millisecond {
				t.Errorf("owner %d: the time is off by %v, it was by %v", id, now, -late)
			}
			late = -now
		}
	})
}

// When all nodes were down at once, the time continues as it was, even if the last entries are old, and whichever node owns the shard. It
// used to become the time of the new owner's clock, so that deadlines fired as early as earlier transfers had made the time late.
func TestTimeIsKept(t *testing.T) {
	for id := wlog.NodeID(1); id <= 3; id += fewer {
		inTrio(t, func(c *trio) {
			l := c.open(0, c.owner(0))
			c.write(l, 1, 3)
			c.ping(3)
			for range 3 {
				for _, to := range []wlog.NodeID{2, 3, 1} {
					if err := c.nodes[c.owner(0)].Transfer(c.Context(), 0, to); err != nil {
						t.Fatal(err)
					}
					c.owner(0)
					c.ping(2)
				}
			}
			c.write(c.open(0, 1), 4, 5)
			c.ping(3600)
			began, at := time.Now(), c.shardTime(1, c.open(0, 1))
			for _, id := range []wlog.NodeID{1, 2, 3} {
				c.kill(id)
			}
			time.Sleep(time.Minute)
			c.boot(id, 1, 2, 3)
			c.boot(id%3+1, 1, 2, 3)
			if c.owner(0) != id {
				if err := c.nodes[c.owner(0)].Transfer(c.Context(), 0, id); err != nil {
					t.Fatal(err)
				}
			}
			off := time.Duration(c.shardTime(id, c.open(0, c.owner(0)))-at) - time.Since(began)
			if off > 0 || off < -20*time.Millisecond {
				t.Errorf("owner %d: the time is off by %v", id, off)
			}
		})
	}
}

// A suspended machine leaves its nodes' clocks behind. When the node is restarted its clock is right, and the time continues as it was: the
// difference to the former clock would be an hour too much.
func TestTimeIsKeptByTheMachinesClock(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.kill(3)
		c.step[3] = -time.Hour
		c.boot(3, 1, 2, 3)
		if owner := c.owner(2); owner != 1 {
			if err := c.nodes[owner].Transfer(c.Context(), 2, 1); err != nil {
				t.Fatal(err)
			}
		}
		l := c.open(2, c.owner(2))
		c.write(l, 1, 3)
		c.ping(5)
		began, at := time.Now(), c.shardTime(1, l)
		for _, id := range []wlog.NodeID{1, 2, 3} {
			c.kill(id)
		}
		c.step[3] = 0
		c.boot(3, 1, 2, 3)
		c.boot(1, 1, 2, 3)
		id := c.owner(2)
		if id != 3 {
			t.Fatalf("owned by node %d", id)
		}
		off := time.Duration(c.shardTime(id, c.open(2, id))-at) - time.Since(began)
		if off > 0 || off < -20*time.Millisecond {
			t.Errorf("the time is off by %v", off)
		}
	})
}

// After a start of all nodes the time continues behind the last entry.
func TestTimeOfAColdStart(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		if err := c.nodes[1].Transfer(c.Context(), 0, 2); err != nil { // the clock of node 2 is 5 s ahead
			t.Fatal(err)
		}
		l := c.open(0, 2)
		ahead := c.shardTime(2, l)
		c.write(l, 1, 3)
		for id := wlog.NodeID(1); id <= 3; id++ {
			c.kill(id)
		}
		c.boot(1, 1, 2, 3)
		c.boot(3, 1, 2, 3)
		id := c.owner(0)
		if got := c.shardTime(id, c.open(0, id)); got < ahead {
			t.Errorf("it goes on at %v, %v before the last entry", got, time.Duration(ahead-got))
		}
	})
}

// Old samples count for less, by the drift that two clocks may have had since. Samples of an earlier owner do not count.
func TestSamples(t *testing.T) {
	const second = hook.Instant(time.Second)
	var s samples
	if got := s.offset(5*second, 0, 0); got != 0 {
		t.Errorf("without samples: %v", got)
	}
	if got := s.offset(5*second, 7*second, 0); got != 2*time.Second {
		t.Errorf("the last entry is ahead: %v", got)
	}
	s.read(0, 100*second, second) // of no owner
	for i := range hook.Instant(30) {
		s.read(1, 20*second+i*second-i%3, 10*second+i*second)
	}
	if got, want := s.offset(40*second, 0, 0), 10*time.Second-margin; got > want || got < want-2*time.Millisecond {
		t.Errorf("from samples: %v, want %v", got, want)
	}
	if got, want := s.offset(40*second+1000*second, 0, 0), 10*time.Second-margin-100*time.Millisecond; got > want || got < want-2*time.Millisecond {
		t.Errorf("from old samples: %v, want %v", got, want)
	}
	s.hear(2, 41*second, 40*second)
	if got, want := s.offset(40*second, 0, 0), time.Second-margin; got != want {
		t.Errorf("after another owner: %v, want %v", got, want)
	}
	s.read(1, 80*second, 40*second)
	if got, want := s.offset(40*second, 0, 0), time.Second-margin; got != want {
		t.Errorf("after an old entry: %v, want %v", got, want)
	}
	s.own(3, time.Minute)
	if got := s.offset(40*second, 0, 0); got != time.Minute {
		t.Errorf("from its own: %v", got)
	}
}

// The kept difference is a little less than the known one, and changes with it. It becomes void when another owner is heard, or the same
// one: the clock may have been set meanwhile.
func TestKeptTime(t *testing.T) {
	const second = hook.Instant(time.Second)
	var s samples
	if got := s.keep(kept{}, second, 0); got != (kept{}) {
		t.Errorf("without samples: %+v", got)
	}
	s.hear(4, 11*second, second)
	k := s.keep(kept{}, second, 0)
	if k != (kept{4, 10*time.Second - margin - keepSlack}) {
		t.Errorf("from a sample: %+v", k)
	}
	s.hear(4, 12*second+second/1000, 2*second)
	if got := s.keep(k, 2*second, 0); got != k {
		t.Errorf("although little has changed: %+v", got)
	}
	s.hear(4, 13*second+second/100, 3*second)
	if got := s.keep(k, 3*second, 0); got != (kept{4, k.ahead + 10*time.Millisecond}) {
		t.Errorf("after more: %+v, it was %+v", got, k)
	}
	s.read(5, 5*second, 4*second)
	if got := s.keep(k, 4*second, 0); got != (kept{5, time.Second - margin - keepSlack}) {
		t.Errorf("after an entry of a later owner: %+v", got)
	}

	s = samplesOf(k, 0)
	if got := s.offset(second, 0, 0); got != k.ahead || s.keep(k, second, 0) != k {
		t.Errorf("after a restart: %v, it was %v", got, k.ahead)
	}
	s.read(4, 3*second, 2*second) // an old entry
	if got := s.offset(2*second, 0, 0); got != k.ahead {
		t.Errorf("after an old entry: %v, it was %v", got, k.ahead)
	}
	s.hear(4, 3*second, 2*second)
	if got := s.offset(2*second, 0, 0); got != time.Second-margin {
		t.Errorf("after the owner was heard: %v", got)
	}
}

// A node that was away receives old entries of an owner from which it had no message. If it becomes the next owner, the time continues as
// it was. It used to continue behind the last entry, an hour late, and so each message's deadline was an hour late.
func TestTimeOfANodeThatWasAway(t *testing.T) {
	for name, test := range map[string]struct {
		next func(c *trio)
		late time.Duration // at most
	}{
		"by a transfer": {func(c *trio) {
			c.isolate(3, false)
			time.Sleep(2 * time.Second)
			if err := c.nodes[2].Transfer(c.Context(), 0, 3); err != nil {
				c.Fatal(err)
			}
		}, 20 * time.Millisecond},
		"from one that does not want to own it": {func(c *trio) {
			if err := c.nodes[1].Leave(c.Context()); err != nil {
				c.Fatal(err)
			}
			c.kill(2)
			c.isolate(3, false)
		}, time.Hour/drift + 20*time.Millisecond}, // drift since the last message of the owner
	} {
		t.Run(name, func(t *testing.T) {
			inTrio(t, func(c *trio) {
				c.write(c.open(0, c.owner(0)), 1, 5)
				c.ping(2)
				c.isolate(3, true)
				if err := c.nodes[1].Transfer(c.Context(), 0, 2); err != nil {
					t.Fatal(err)
				}
				c.owner(0)
				l := c.open(0, 2)
				c.write(l, 6, 10)
				c.ping(2)
				time.Sleep(time.Hour)
				began, at := time.Now(), c.shardTime(2, l)
				test.next(c)
				if id := c.owner(0); id != 3 {
					t.Fatalf("owned by node %d", id)
				}
				off := time.Duration(c.shardTime(3, c.open(0, 3))-at) - time.Since(began)
				if off > 0 || off < -test.late {
					t.Errorf("the time is off by %v", off)
				}
			})
		})
	}
}

// A node that was stopped receives all messages that have waited for it at once, from an owner that it did not know, and then owns the
// shard. Its electors send it the time. The time was late by as long as the node was stopped.
func TestTimeOfANodeThatWasStopped(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		if err := c.nodes[1].Transfer(c.Context(), 0, 2); err != nil {
			t.Fatal(err)
		}
		l := c.open(0, c.owner(0))
		c.stop(3)
		c.write(l, 1, 10)
		began, at := time.Now(), c.shardTime(2, l)
		for range 60 {
			c.nodes[1].Heard(2, c.nodes[2].Times())
			time.Sleep(time.Second)
		}
		if err := c.nodes[1].Leave(c.Context()); err != nil {
			t.Fatal(err)
		}
		c.kill(2)
		c.goOn(3)
		if id := c.owner(0); id != 3 {
			t.Fatalf("owned by node %d", id)
		}
		off := time.Duration(c.shardTime(3, c.open(0, 3))-at) - time.Since(began)
		if off > 0 || off < -20*time.Millisecond {
			t.Errorf("the time is off by %v", off)
		}
	})
}

// A node that knows the owner's time tells other nodes, but it tells its knowledge from an earlier life only as a claim: the clock may have
// been set since.
func TestWhatOthersAreTold(t *testing.T) {
	const second = hook.Instant(time.Second)
	s := samplesOf(kept{4, time.Hour}, 0)
	if term, at, claim := s.latestKnown(second); !claim {
		t.Errorf("after a restart: %v in term %d", at, term)
	}
	s.take(4, 2*second, second, told) // an old entry
	if term, at, claim := s.latestKnown(second); !claim {
		t.Errorf("after an old entry: %v in term %d", at, term)
	}
	s.take(4, 11*second, second, heard)
	if term, at, claim := s.latestKnown(2 * second); claim || term != 4 || at > 12*second || at < 12*second-2*hook.Instant(time.Millisecond) {
		t.Errorf("after the owner was heard: %v in term %d", at, term)
	}
	s.own(5, time.Minute)
	if term, at, claim := s.latestKnown(2 * second); claim || term != 5 || at != 62*second {
		t.Errorf("by the owner: %v in term %d", at, term)
	}
}

// A claim of a later owner's time lowers the time where that owner's entries are trimmed, and never raises it. A claim by a clock that was
// set makes little difference.
func TestClaims(t *testing.T) {
	const second, own, late = hook.Instant(time.Second), 10 * time.Second, 3 * time.Millisecond
	type said struct {
		term uint64
		less time.Duration // than the time of term 2, as the node knows it
		by   source
	}
	for name, test := range map[string]struct {
		said    []said
		trimmed uint64        // the term of the last trimmed entry
		less    time.Duration // by how much the result is less
	}{
		"none":                          {nil, 3, 0},
		"of a later owner":              {[]said{{3, late, claimed}}, 3, late + margin},
		"of one later than the log":     {[]said{{4, late, claimed}}, 3, late + margin},
		"with a log of all entries":     {[]said{{3, late, claimed}}, 2, 0},
		"of the same owner":             {[]said{{2, late, claimed}}, 3, 0},
		"by a clock that was set":       {[]said{{3, -time.Hour, claimed}}, 3, 0},
		"by a clock that was set back":  {[]said{{3, time.Hour, claimed}}, 3, 0},
		"the highest of three":          {[]said{{3, 5 * late, claimed}, {3, late, claimed}, {3, 2 * late, claimed}}, 3, late + margin},
		"the later of two":              {[]said{{4, 5 * late, claimed}, {3, late, claimed}}, 4, 5*late + margin},
		"before an entry of that owner": {[]said{{3, late, claimed}, {3, 2 * late, told}}, 3, 2*late + margin},
		"before that owner is heard":    {[]said{{3, late, claimed}, {3, 2 * late, heard}}, 3, 2*late + margin},
		"before one between":            {[]said{{4, 5 * late, claimed}, {3, late, told}}, 4, 5*late + margin},
	} {
		s := samplesOf(kept{2, own}, 0)
		for _, one := range test.said {
			s.take(one.term, second+hook.Instant(own-one.less), second, one.by)
		}
		if got := own - s.offset(second, 0, test.trimmed); got != test.less {
			t.Errorf("%s: %v less, want %v", name, got, test.less)
		}
		if s.own(5, own); s.offset(second, 0, 6) != own {
			t.Errorf("%s: its own is %v", name, s.offset(second, 0, 6))
		}
	}
}

// All nodes were down. A node that was away while another node owned the shard receives a log that begins behind that owner's entries, from
// a node that knows the time only from an earlier life, and is elected by the last node that has these entries. The time had become 3 ms
// late under that owner. That was made up for, so that deadlines came 3 ms early. Found by game 200264890.
func TestTimeOfOwnersWhoseEntriesAreTrimmed(t *testing.T) {
	inGame(t, func(c *cluster) {
		const was, late = 10 * time.Second, 3 * time.Millisecond
		n, other := c.nodes[1], c.nodes[2]
		n.samples = samplesOf(kept{2, was - time.Duration(n.skew)}, 0)
		other.samples = samplesOf(kept{3, was - late - time.Duration(other.skew)}, 0)
		c.hear(n, &raftpb.Message{
			Type: raftpb.MsgSnap.Enum(), From: new(uint64(3)), To: new(uint64(1)), Term: new(uint64(4)), Context: make([]byte, stampSize),
			Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(5)), Term: new(uint64(3)), ConfState: n.g.disk.conf}},
		})
		for range 10 {
			c.write(n)
		}
		if n.g.disk.trimmed() != 3 || other.g.disk.trimmed() != 0 {
			t.Fatalf("trimmed through term %d, and a log that was not through term %d", n.g.disk.trimmed(), other.g.disk.trimmed())
		}
		c.net = nil
		n.g.campaign()
		c.after(n)
		for range 100 {
			if len(c.net) > 0 {
				f := c.net[0]
				c.net = c.net[1:]
				if to := c.nodes[f.m.GetTo()]; to != c.nodes[3] { // node 3 is down
					c.hand(to, f)
					c.after(to)
				}
			}
			c.write(n)
			c.write(other)
		}
		if n.owned == 0 {
			t.Fatal("it is not elected")
		}
		if off := time.Duration(n.skew) + n.offset - (was - late); off > 0 || off < -5*time.Millisecond {
			t.Errorf("it is off by %v", off)
		}
	})
}

// A node whose clock was set while it was down receives a shard before it has a message of its owner. The time must continue as that
// owner's. The node used its former knowledge instead, so that deadlines came as early as the clock was set forward.
func TestTimeOfANodeWhoseClockWasSet(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		l := c.open(0, 1)
		c.write(l, 1, 5)
		c.ping(2)
		c.kill(3)
		c.boot(3, 1, 2, 3)
		time.Sleep(2 * time.Second)
		r := c.nodes[3].running(0)
		if err := r.do(func() { r.samples.exact += time.Hour }); err != nil { // by the machine's clock
			t.Fatal(err)
		}
		began, at := time.Now(), c.shardTime(1, l)
		if err := c.nodes[1].Transfer(c.Context(), 0, 3); err != nil {
			t.Fatal(err)
		}
		off := time.Duration(c.shardTime(3, c.open(0, c.owner(0)))-at) - time.Since(began)
		if off > 0 || off < -20*time.Millisecond {
			t.Errorf("the time is off by %v", off)
		}
	})
}
