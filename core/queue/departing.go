package queue

import "github.com/curfewmq/curfew/sdk/hook"

// departing is messages that have been given up, and wait until there is room for
// them to leave: see traffic. Until then they are in the queue, out of reach.
type departing struct {
	list []departure // in the order they were given up
}

// departure is a message that is to go to a target.
type departure struct {
	ref    Ref
	why    hook.Reason
	target *hook.Target
}

// departBytes is about how much leaves at a time.
const departBytes = 256 << 10

// count returns how many messages wait.
func (d *departing) count() int {
	if d == nil {
		return 0
	}
	return len(d.list)
}

// deferDepartures has messages wait that are to be routed and for which there is no room,
// and returns the others. All of them are taken. admitted says that some are to be
// sent now.
func (q *Queue) deferDepartures(picks []pick, vs []hook.Verdict) (_ []pick, _ []hook.Verdict, admitted bool) {
	kept, bytes := 0, 0
	for i, p := range picks {
		if vs[i].Action == hook.Route {
			admitted = admitted || q.departing.count() == 0 && underway.admit(q.mailbox)
			if !admitted || bytes > departBytes {
				q.waitToDepart(p, &vs[i])
				continue
			}
			bytes += int(q.levels[p.level].slot(p.seq).length)
		}
		if kept < i {
			picks[kept], vs[kept] = p, vs[i]
			q.buf.leaving.records[kept] = q.buf.leaving.records[i]
		}
		kept++
	}
	return picks[:kept], vs[:kept], admitted
}

func (q *Queue) waitToDepart(p pick, v *hook.Verdict) {
	if q.departing == nil {
		q.departing = &departing{}
	}
	q.departing.list = append(q.departing.list, departure{p.ref(), v.Reason, v.Target})
	q.unacked--
}

// depart sends on those that wait, for as long as there is room.
func (q *Queue) depart(now hook.Instant) {
	for q.departing.count() > 0 && underway.admit(q.mailbox) {
		underway.during(func() { q.departSome(now) })
	}
}

// farewellBytes is how much of what waits leaves with a deleted queue, room or no room.
// It is memory then that nobody limits.
const farewellBytes = 64 << 20

// departNow sends on those that wait, as the queue is about to go: they had left it
// long ago if there had been room. What is left goes with the queue.
func (q *Queue) departNow(now hook.Instant) {
	for bytes := 0; q.departing.count() > 0 && bytes < farewellBytes; {
		bytes += q.departSome(now)
	}
}

// departSome sends on the first ones, and returns how many bytes they are.
func (q *Queue) departSome(now hook.Instant) (bytes int) {
	w, d := q.buf, q.departing
	picks := w.parting[:0]
	_, vs := w.batch(min(len(d.list), maxBatch))
	w.leaving.records = w.leaving.records[:0]
	for len(picks) < len(vs) && bytes <= departBytes {
		l := d.list[len(picks)]
		p := pick{seq: l.ref.seq(), level: int32(l.ref.level())}
		s := q.levels[p.level].slot(p.seq)
		bytes += int(s.length)
		vs[len(picks)] = hook.Verdict{Action: hook.Route, Reason: l.why, Target: l.target}
		picks = append(picks, p)
		w.leaving.records = append(w.leaving.records, q.store.read(*s))
	}
	w.parting = picks
	clear(d.list[:len(picks)])
	if d.list = d.list[len(picks):]; len(d.list) == 0 {
		q.departing = nil
	}
	q.unacked += len(picks)
	q.letGo(now, picks, vs[:len(picks)])
	return bytes
}

// ending is how far a queue has come whose time is up, and which gives up what it
// holds before it goes. If somebody uses it meanwhile, it stays.
type ending struct {
	lease   hook.Instant
	before  uint64 // messages dead-lettered with this reason
	dropped uint64 // likewise, of those that nobody wanted dead-lettered
}

// advanceEnding gives up what a queue holds that is about to end, a part of it, and ends the
// queue when all has left. It is safe to call at any time.
func (q *Queue) advanceEnding(now hook.Instant) {
	e := q.ending
	if e == nil {
		return
	}
	if q.consumers.count() > 0 {
		q.ending = nil
		return
	}
	if q.departing.count() == 0 && q.ready > 0 {
		before := q.ready
		q.dropFromHead(now, hook.ReasonQueueExpired, func() bool { return before-q.ready < maxBatch })
	}
	if q.ready+q.waiting() > 0 {
		return
	}
	q.end(now, Deletion{
		Reason: DeletedExpired, Lease: e.lease, DeadLettered: int(q.count.DeadLettered[hook.ReasonQueueExpired] - e.before),
		Messages: int(q.count.Dropped[hook.ReasonQueueExpired] - e.dropped),
	})
}
