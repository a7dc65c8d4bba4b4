package vhost

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// RedriveTo says where a redrive moves messages.
type RedriveTo uint8

// The targets of redrives.
const (
	ToSource   RedriveTo = iota // the queue where each of them died last
	ToOrigin                    // the exchange and the key that each was published with before it died first
	ToQueue                     // one queue
	ToExchange                  // one exchange
)

// RedriveRequest says which messages a client wants to move, and where to.
type RedriveRequest struct {
	From     string // the queue
	To       RedriveTo
	Queue    string // with ToQueue
	Exchange string // with ToExchange
	Key      string // with ToExchange and HasKey; else messages keep their keys
	HasKey   bool

	// The messages; empty values select all. Reason and WhereQueue are compared with their last death.
	Reason, WhereQueue, MessageID string
	OlderThan                     time.Duration // at least so long in the queue

	Count     int // messages to move; 0 means all
	PerSecond int // 0 means as fast as the targets take them
	// MayPublish checks that the user may publish to an exchange with a key. It is called
	// once for each exchange and key that is used, also on a queue's turn.
	MayPublish func(exchange, key string) error
}

// RedriveJob is a redrive that runs or has ended. Any goroutine may use it.
type RedriveJob struct {
	ID        string
	Request   RedriveRequest // read only
	VHost     string
	mailbox   *queue.Mailbox
	redrive   *queue.Redrive
	choice    *redriveChoice
	forgotten hook.Instant // when it is forgotten; 0 while it runs. The table's lock guards it
}

// RedriveTarget counts the messages of a redrive by where they went.
type RedriveTarget struct {
	Queue    string // with ToSource and ToQueue
	Exchange string
	Others   bool // all targets beyond the first thousand
	Moved    int  // or, in a plan, to be moved
	Failed   int
}

// RedrivePlan describes the expected effects of a redrive.
type RedrivePlan struct {
	Matched  int // messages that would leave
	Failed   [queue.RedriveFailures]int
	Targets  []RedriveTarget
	Complete bool // the time limit did not cut the search off
	until    queue.Horizon
}

// Limits of redrives.
const (
	maxRedrives   = 16 // that run in a vhost at a time
	maxRedriven   = 64 // that have ended, and are remembered
	redriveMemory = time.Hour
)

// Redrives are the redrives of a vhost.
type Redrives struct {
	*rules
	topology  *topology
	queues    *queues
	clock     clock.Clock
	offset    time.Duration // from the node's clock to clock
	log       *slog.Logger
	telemetry *telemetry.Recorder

	mu       sync.Mutex // guards the rest, and the jobs' forgotten
	jobs     []*RedriveJob
	starting int // jobs that are about to be added
}

// reserve makes space for a job, unless as many as allowed run.
func (rs *Redrives) reserve(now hook.Instant) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.forget(now)
	running := rs.starting
	for _, o := range rs.jobs {
		if o.forgotten == 0 {
			running++
		}
	}
	if running >= maxRedrives {
		return refuse(Conflict, "%d redrives are running in vhost '%s': no more are allowed at a time", running, rs.name)
	}
	rs.starting++
	return nil
}

// add adds a job in the reserved space, or gives that up if j is nil.
func (rs *Redrives) add(j *RedriveJob) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.starting--
	if j != nil {
		rs.jobs = append(rs.jobs, j)
	}
}

// forget forgets jobs that ended long ago, or before many others. The caller holds mu.
func (rs *Redrives) forget(now hook.Instant) {
	ended := 0
	for _, j := range rs.jobs {
		if j.forgotten != 0 {
			ended++
		}
	}
	rs.jobs = slices.DeleteFunc(rs.jobs, func(j *RedriveJob) bool {
		if j.forgotten == 0 || j.forgotten > now && ended <= maxRedriven {
			return false
		}
		ended--
		return true
	})
}

func (rs *Redrives) noteEnd(now hook.Instant, j *RedriveJob) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	j.forgotten = now.AddMillis(redriveMemory.Milliseconds())
}

func (rs *Redrives) remove(j *RedriveJob) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.jobs = slices.DeleteFunc(rs.jobs, func(o *RedriveJob) bool { return o == j })
}

// List returns the redrives of the vhost that run or have ended lately, in the order in which they began.
func (rs *Redrives) List() []*RedriveJob {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.forget(rs.clock())
	return slices.Clone(rs.jobs)
}

// check looks up the queue of a request, and checks the target that all messages share.
func (rs *Redrives) check(r *RedriveRequest) (*queue.Mailbox, error) {
	r.From, r.Queue, r.Exchange = rabbit.Sanitise(r.From), rabbit.Sanitise(r.Queue), rabbit.Sanitise(r.Exchange)
	m, err := rs.topology.Queue(r.From, 0)
	if err != nil {
		return nil, err
	}
	switch r.To {
	case ToSource:
		return m, r.MayPublish("", "")
	case ToQueue:
		if err := r.MayPublish("", r.Queue); err != nil {
			return nil, err
		}
		if rs.topology.Mailbox(r.Queue) == nil {
			return nil, missingTarget(rs.topology.life.NoQueue(r.Queue))
		}
	case ToExchange:
		if err := r.MayPublish(r.Exchange, r.Key); err != nil {
			return nil, err
		}
		if err := rs.topology.Publishable(r.Exchange); err != nil {
			return nil, missingTarget(err)
		}
	}
	return m, nil
}

// missingTarget returns the error for a target that does not exist. Unlike a missing queue
// to move messages from, it is an error in the request.
func missingTarget(err error) error {
	if e, ok := errors.AsType[*Error](err); ok && e.Kind == NotFound {
		return &Error{Kind: Precondition, Text: e.Text}
	}
	return err
}

// Plan finds out which messages a redrive would move, and where to. It looks at messages in
// parts, until end, an instant of the node's clock; after that the plan is not complete.
// The error for a target that does not exist names the target.
func (rs *Redrives) Plan(r *RedriveRequest, end hook.Instant) (RedrivePlan, error) {
	m, err := rs.check(r)
	if err != nil {
		return RedrivePlan{}, err
	}
	c := newRedriveChoice(rs.topology, r)
	var p RedrivePlan
	var scan *queue.Scan
	var halt *queue.StoppedError
	enough := func() bool { return r.Count > 0 && p.Matched >= r.Count }
	p.Complete, err = m.Parts(end.Add(rs.offset), func(q *queue.Queue) bool {
		if halt = q.Stopped(); halt != nil {
			return true
		}
		if scan == nil {
			scan = queue.NewScan(q)
		}
		return scan.Next(q, func(s *queue.Stored) bool {
			c.plan(s, &p, r.Count)
			return !enough()
		}) || enough()
	})
	switch {
	case err != nil:
		return RedrivePlan{}, rs.queues.orNoQueue(m, err)
	case halt != nil:
		return RedrivePlan{}, rs.stopped(halt)
	}
	p.Targets, p.until = c.named(p.Targets), scan.Horizon()
	return p, rs.checkPlan(&p)
}

// checkPlan returns the error for the first target that does not exist.
func (rs *Redrives) checkPlan(p *RedrivePlan) error {
	for _, t := range p.Targets {
		switch {
		case t.Others, t.Moved == 0:
		case t.Exchange == "" && rs.topology.Mailbox(t.Queue) == nil:
			return missingTarget(rs.topology.life.NoQueue(t.Queue))
		case t.Exchange != "":
			if err := rs.topology.Publishable(t.Exchange); err != nil {
				return missingTarget(err)
			}
		}
	}
	return nil
}

// Start begins a redrive that was planned, and returns at once.
func (rs *Redrives) Start(r *RedriveRequest, p *RedrivePlan) (j *RedriveJob, err error) {
	m, err := rs.check(r)
	if err != nil {
		return nil, err
	}
	if err := rs.reserve(rs.clock()); err != nil {
		return nil, err
	}
	defer func() { rs.add(j) }()
	job := &RedriveJob{ID: newRedriveID(), Request: *r, VHost: rs.name, mailbox: m, choice: newRedriveChoice(rs.topology, r)}
	job.choice.runs = true
	options := queue.RedriveOptions{
		Choose: job.choice.choose, Ended: func(now hook.Instant, s *queue.RedriveStatus) { rs.ended(now, job, s) },
		Most: r.Count, PerSecond: r.PerSecond, Until: p.until, Total: -1,
	}
	if p.Complete {
		options.Total = p.Matched
	}
	var started error
	err = rs.queues.run(m, func(q *queue.Queue, now hook.Instant) { job.redrive, started = q.StartRedrive(now, options) })
	switch {
	case err != nil:
		return nil, rs.queues.orNoQueue(m, err)
	case started != nil:
		return nil, refuse(Conflict, "%s is being redriven: one redrive of a queue is allowed at a time", rs.queueName(r.From))
	}
	return job, nil
}

// newRedriveID returns a name that no other redrive has, in any vhost, before or after a restart.
func newRedriveID() string { return strconv.FormatUint(rand.Uint64(), 36) }

// Status returns the progress of the redrive, and its counts by target.
func (j *RedriveJob) Status() (s queue.RedriveStatus, targets []RedriveTarget) {
	s = j.redrive.Status()
	counts := make([]RedriveTarget, len(s.Targets))
	for i, n := range s.Targets {
		counts[i].Moved, counts[i].Failed = n.Moved, n.Failed
	}
	return s, j.choice.named(counts)
}

// Cancel ends a redrive once the messages under way have arrived, or forgets one that has ended.
func (rs *Redrives) Cancel(j *RedriveJob) {
	if s := j.redrive.Status(); s.Ended != 0 {
		rs.remove(j)
		return
	}
	// An error means that the queue is deleted, which has ended the redrive.
	_ = j.mailbox.Do(func(q *queue.Queue, now hook.Instant) { q.CancelRedrive(now, j.redrive) })
}

// ended reports the end of a redrive. It is called on its queue's turn.
func (rs *Redrives) ended(now hook.Instant, j *RedriveJob, s *queue.RedriveStatus) {
	rs.noteEnd(now, j)
	j.choice.end()
	failed := 0
	for _, n := range s.Failed {
		failed += n
	}
	rs.telemetry.Notice(telemetry.Notice{Kind: telemetry.RedriveFinished, VHost: rs.name, Redrive: &telemetry.RedriveEnd{
		ID: j.ID, Queue: j.Request.From, State: s.State.String(), Reason: s.Reason, Moved: s.Moved, Failed: failed, Took: s.Ended.Sub(s.Began),
	}})
	rs.log.Info("redrive finished", "redrive", j.ID, "queue", j.Request.From, "state", s.State.String(), "moved", s.Moved, "failed", failed)
}
