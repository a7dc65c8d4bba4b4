// Package live describes all queues, each second, to every reader: their messages, and when these are due. Readers share one collection,
// which is made at most once a second, and only while there are readers: the goroutine of one reader collects, and the others wait for it.
package live

import (
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
)

type (
	object = jsonobj.Object
	member = jsonobj.Member
)

// period is how often something is collected.
const period = time.Second

// secondly does something at most once in each second of the clock, for all goroutines that need it. The zero value has done nothing yet.
type secondly struct {
	mu    sync.Mutex    // guards the fields below
	under chan struct{} // closed at the end of the call under way; nil if there is none
	done  int64         // the second in which it was done; 0 = never
}

// do calls fn, unless fn was called in the present second. If another goroutine is calling it, do waits for that. fn must end.
func (o *secondly) do(now clock.Clock, fn func()) {
	o.mu.Lock()
	second := int64(now()) / int64(period)
	if under := o.under; under != nil {
		o.mu.Unlock()
		<-under
		return
	}
	if o.done == second {
		o.mu.Unlock()
		return
	}
	under := make(chan struct{})
	o.under, o.done = under, second
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		o.under = nil
		o.mu.Unlock()
		close(under)
	}()
	fn()
}

// unless calls fn unless something is under way. fn must be quick: goroutines that call do wait for it.
func (o *secondly) unless(fn func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.under == nil {
		fn()
	}
}
