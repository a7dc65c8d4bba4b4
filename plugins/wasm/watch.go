package wasm

import (
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
)

// watch is what the traces of the messages in a call get to know of it. A nil one
// is of a call that nobody follows, as nearly all are: it costs nothing more than
// looking for a message that is traced.
type watch struct {
	hook       abi.Hook
	began      hook.Instant
	fuel       int64
	failures   map[int]string   // by message, of those whose verdict made no sense
	attributes map[int][]string // by message, name and value by turns
}

// maxAttributes is how many attributes a policy may add to a trace in one call, for
// each message.
const maxAttributes = 32

// watch returns nil unless there is a message that is traced. What a shadow says is
// nobody's fate.
func (c *call) watch(v *version, h abi.Hook) *watch {
	if c.shadowing {
		return nil
	}
	for i := range c.ms {
		if c.ms[i].Traced {
			return &watch{hook: h, began: v.policy.host.time()}
		}
	}
	return nil
}

// time is what the clock says, if there is one.
func (h *Host) time() hook.Instant {
	if h.env.Clock == nil {
		return 0
	}
	return h.env.Clock()
}

// next begins the next call of those for one message each.
func (w *watch) next(v *version) { *w = watch{hook: w.hook, began: v.policy.host.time()} }

// failed notes that the verdict about a message made no sense.
func (w *watch) failed(i int, why mistake, a *verdict) {
	if w == nil {
		return
	}
	if w.failures == nil {
		w.failures = map[int]string{}
	}
	w.failures[i] = mistakes{what: why, verdict: *a}.String()
}

// attribute notes what the guest says of a message. It reports whether there is a
// trace to add it to.
func (w *watch) attribute(i int, m *hook.Message, name, value string) bool {
	if w == nil || !m.Traced {
		return false
	}
	if w.attributes == nil {
		w.attributes = map[int][]string{}
	}
	if len(w.attributes[i]) < 2*maxAttributes {
		w.attributes[i] = append(w.attributes[i], name, value)
	}
	return true
}

// report tells what became of the messages that are traced. failure is why the call
// as a whole has no answer; "" = it has.
func (w *watch) report(c *call, v *version, failure string) {
	if w == nil {
		return
	}
	took, digest := v.policy.host.time().Sub(w.began), v.digestLabel()
	for i := range c.ms {
		if !c.ms[i].Traced {
			continue
		}
		d := hook.Decision{
			Policy: v.policy.name, Digest: digest, Hook: w.hook.String(), Took: took, Batch: len(c.ms), Fuel: w.fuel,
			Verdict: c.vs[i], Failure: failure, Attributes: w.attributes[i],
		}
		if failure == "" {
			d.Failure = w.failures[i]
		}
		c.ms[i].Decided(&d)
	}
}

// digestLabel is the digest of the version's module; "" if there is none.
func (v *version) digestLabel() string {
	if v.module == nil {
		return ""
	}
	return "sha256:" + v.module.Digest
}
