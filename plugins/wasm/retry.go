package wasm

import (
	"sync"
	"time"

	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// retries limit the cost of calling a policy again, because calls that fail then do not count for the breaker. Any goroutine may use
// them.
type retries struct {
	mu       sync.Mutex   // guards the fields below
	spent    int          // failures, less those that the passing time has compensated
	filled   hook.Instant // when spent was last reduced
	together int          // number of messages in one call; 0 means as many as possible
	begun    uint64       // number of tries
}

// This many calls about messages in doubt may fail at once, and one more after each pause.
const (
	retryBurst = 16
	retryPause = 125 * time.Millisecond
)

// allow reports whether one more call may fail.
func (r *retries) allow(now hook.Instant) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := int(now.Sub(r.filled) / retryPause); n > 0 {
		r.spent, r.filled = max(0, r.spent-n), now
	}
	return r.spent < retryBurst
}

// failure counts a call that has failed.
func (r *retries) failure() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spent++
}

// begin returns the index of the message with which a try over n messages begins, and roughly how many it passes in one call, at most
// most.
func (r *retries) begin(n, most int) (first, together int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.together == 0 || r.together >= most {
		return 0, most
	}
	const golden = 0x9E3779B97F4A7C15 // its multiples are evenly distributed
	r.begun++
	return int(r.begun * golden >> 32 % uint64(n)), r.together
}

// end records roughly how many messages the next try passes in one call.
func (r *retries) end(together, most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.together = together; together >= most {
		r.together = 0
	}
}

// attempt records how a call about messages in doubt has ended.
type attempt struct{ failed, unavailable bool }

// tryAgain calls the active version about messages in doubt. A call that fails leaves them unchanged, and in doubt.
func (c *call) tryAgain() {
	c.attempt = &attempt{}
	tried := 0
	if v := c.policy.active.Load(); v != nil {
		tried = v.try(c)
	} else {
		c.fallBack(c.policy.absent())
	}
	left, renewed := 0, 0
	for i := range c.vs {
		switch {
		case c.vs[i].Again:
			left++
		case c.vs[i].Deadline != c.ms[i].Deadline:
			renewed++
		}
	}
	c.policy.asked.Add(uint64(tried))
	c.policy.renewed.Add(uint64(renewed))
	c.policy.decided(len(c.ms)-left, left)
}

// try calls the version about messages in doubt, and returns roughly how many of them were
// in its calls. A failing call is repeated with half as many messages, so that a message on
// which the module fails does not keep others from their deadlines, as far as instances and
// retries allow. For example, if the module fails on the first of 64 messages, calls with
// 64, 32, 16, 8, 4, 2 and 1 messages fail, and the next calls, with 1, 2, 4 and more
// messages, decide about the other 63. If that breaks off, the next try continues with as
// few messages, and begins with another one: otherwise the failing message might come
// before the others each time.
func (v *version) try(c *call) (tried int) {
	most := v.mostTogether(c)
	first, together := v.retries.begin(len(c.ms), most)
	over := false
	for _, part := range [...]call{c.slice(first, len(c.ms)), c.slice(0, first)} {
		for len(part.ms) > 0 {
			if over = over || !v.retries.allow(c.now); over {
				part.fallBack(v)
				break
			}
			some := part.slice(0, min(together, len(part.ms)))
			some.reset()
			v.ask(&some)
			switch n := len(some.ms); {
			case c.attempt.unavailable:
				over = true
				continue
			case c.attempt.failed && n > 1:
				together = n / 2
				continue
			case !c.attempt.failed:
				together = min(2*together, most)
			}
			tried += len(some.ms)
			part = part.slice(len(some.ms), len(part.ms))
		}
	}
	v.retries.end(together, most)
	return tried
}

// mostTogether returns roughly how many messages fit into one call.
func (v *version) mostTogether(c *call) int {
	switch h := hooksOf[c.at]; {
	case v.hooks.has(h):
		return max(v.capacity, 1)
	case h == abi.OnEnqueue && v.hooks.has(abi.Deadline):
		return 1
	}
	return max(len(c.ms), 1) // the policy has no opinion about them
}

// reset undoes the effects of a failed call before the next one.
func (c *call) reset() {
	*c.attempt = attempt{}
	for i := range c.vs {
		c.vs[i].Again = false
		if c.at == atChange {
			guest.Restore(&c.vs[i], &c.ms[i])
		}
	}
}
