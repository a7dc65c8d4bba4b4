package live

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Counts says when messages are due, as seen from one instant.
type Counts struct {
	At          hook.Instant
	Complete    bool // all messages are counted
	Never       int  // ready messages without a deadline
	Held        int  // messages
	Earliest    hook.Instant
	NextRelease hook.Instant
	due, held   queue.DueCounts
}

// add adds counts that are seen from the same instant.
func (c *Counts) add(o *Counts) {
	c.Never += o.Never
	c.Held += o.Held
	c.Earliest, c.NextRelease = earlier(c.Earliest, o.Earliest), earlier(c.NextRelease, o.NextRelease)
	c.Complete = c.Complete && o.Complete
	for _, pair := range [...][2]*queue.DueCounts{{&c.due, &o.due}, {&c.held, &o.held}} {
		pair[0].Overdue += pair[1].Overdue
		for i, n := range pair[1].Steps {
			pair[0].Steps[i] += n
		}
	}
}

const (
	// DefaultBuckets is the number of buckets of a histogram if the reader names none.
	DefaultBuckets = 48
	// minBuckets and maxBuckets limit the number of buckets.
	minBuckets = 4
	maxBuckets = 96
)

// ParseBuckets reads a number of buckets from a parameter; an empty one is the default.
func ParseBuckets(s string) (int, error) {
	if s == "" {
		return DefaultBuckets, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < minBuckets || n > maxBuckets {
		return 0, jsonobj.Errorf("buckets: %q is not a number of buckets from %d to %d", short(s), minBuckets, maxBuckets)
	}
	return n, nil
}

// short cuts a quotation in an error message.
func short(s string) string {
	const most = 100
	return s[:min(len(s), most)]
}

// bounds returns the steps of the grid at which n buckets end, evenly on a logarithmic scale; the last bucket has no end. With enough
// buckets, a second, a minute, an hour and a day are ends.
func bounds(n int) []int {
	steps := make([]int, n-1)
	ratio := float64(queue.DueLast) / float64(queue.DueFirst)
	nearest := func(at time.Duration) int {
		step := queue.DueStep(at)
		if step > 0 && at-queue.DueBound(step-1) < queue.DueBound(step)-at {
			step--
		}
		return step
	}
	for i := range steps {
		steps[i] = nearest(time.Duration(float64(queue.DueFirst) * math.Pow(ratio, float64(i)/float64(n-2))))
	}
	const enough = 16
	if n >= enough {
		for _, natural := range []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour} {
			step := queue.DueStep(natural)
			i, _ := slices.BinarySearch(steps, step)
			if step-steps[i-1] < steps[i]-step {
				i--
			}
			steps[i] = step
		}
	}
	return steps
}

// Object returns the counts as an object, with so many buckets.
func (c *Counts) Object(buckets int) jsonobj.Object {
	return object{
		{"at", jsonobj.Instant(c.At)},
		{"complete", c.Complete},
		{"overdue", c.due.Overdue},
		{"never", c.Never},
		{"held", c.Held},
		{"earliest", jsonobj.Instant(c.Earliest)},
		{"next_release", jsonobj.Instant(c.NextRelease)},
		{"buckets", c.buckets(buckets)},
	}
}

// buckets divides the counts into buckets. Holds that have ended count in the first bucket.
func (c *Counts) buckets(n int) []jsonobj.Object {
	all, from := make([]object, 0, n), 0
	released := c.held.Overdue
	bucket := func(to any, end int) {
		due, held := 0, released
		for i := from; i < end; i++ {
			due += int(c.due.Steps[i])
			held += int(c.held.Steps[i])
		}
		from, released = end, 0
		all = append(all, object{{"to_ms", to}, {"count", due}, {"held", held}})
	}
	for _, step := range bounds(n) {
		bucket(queue.DueBound(step).Milliseconds(), step+1)
	}
	bucket(nil, queue.DueSteps+1)
	return all
}

// Count counts when the messages of one queue are due, in parts, for at most some time. It is [queue.ErrGone] if the queue is deleted.
func Count(m *queue.Mailbox) (c Counts, err error) {
	var s queue.DueSurvey
	const most = 2 * time.Second
	s.Reset(m.Now())
	c.At = s.Now()
	c.Complete, err = m.Parts(c.At.Add(most), func(q *queue.Queue) bool {
		stats := q.Stats()
		c.Held, c.NextRelease = stats.Held, stats.NextRelease
		return s.Next(q)
	})
	c.Never, c.Earliest, c.due, c.held = s.Never, s.Due.Earliest, s.Due, s.Held
	return c, err
}
