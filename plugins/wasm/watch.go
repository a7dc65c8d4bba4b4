package wasm

import (
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// watch collects the facts of a call for its traced messages. nil means that none of them is traced, as in nearly all calls.
type watch struct {
	hook       abi.Hook
	began      hook.Instant
	fuel       int64
	failures   map[int]string   // of invalid verdicts, by message
	attributes map[int][]string // alternating names and values, by message
}

// maxAttributes bounds the attributes of a message in one call.
const maxAttributes = 32

// watch returns nil unless a message is traced. A shadow's call is never watched, because its verdicts have no effect.
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

// time returns the time; 0 without a clock.
func (h *Host) time() hook.Instant {
	if h.env.Clock == nil {
		return 0
	}
	return h.env.Clock()
}

// next begins the next call, if each message has its own.
func (w *watch) next(v *version) { *w = watch{hook: w.hook, began: v.policy.host.time()} }

// failed records an invalid verdict.
func (w *watch) failed(i int, why mistake, a *verdict) {
	if w == nil {
		return
	}
	if w.failures == nil {
		w.failures = map[int]string{}
	}
	w.failures[i] = mistakes{what: why, verdict: *a}.String()
}

// attribute records a guest's attribute of a message. It returns false if the message is not traced.
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

// report passes the decisions about the traced messages to the broker. failure is why the whole call failed, with its kind; "" = it did
// not.
func (w *watch) report(c *call, v *version, k kind, failure string) {
	if w == nil {
		return
	}
	took, digest := v.policy.host.time().Sub(w.began), v.digestLabel()
	for i := range c.ms {
		if !c.ms[i].Traced {
			continue
		}
		d := guest.Decision{
			Policy: v.policy.name, Digest: digest, Hook: w.hook.String(), Took: took, Batch: len(c.ms), Fuel: w.fuel,
			Verdict: c.vs[i], Failure: failure, Attributes: w.attributes[i],
		}
		if failure == "" {
			k, d.Failure = invalidVerdict, w.failures[i]
		}
		if d.Failure != "" {
			d.FailureKind = k.String()
		}
		guest.Decided(&c.ms[i], &d)
	}
}

// digestLabel returns the digest of the version's module; "" if there is none.
func (v *version) digestLabel() string {
	if v.module == nil {
		return ""
	}
	return "sha256:" + v.module.Digest
}
