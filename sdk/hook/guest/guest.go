// Package guest is for plugins that run others' code, such as WebAssembly modules. Their strategies are added and removed while the broker
// runs, a message's deadline identifies the code that set it, and traces show the decisions of that code. Other plugins need none of it.
package guest

import (
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/internal/access"
)

// Dynamic is a Strategist whose strategies are added and removed while the broker runs. Strategies may be called from any goroutine.
type Dynamic interface {
	hook.Strategist
	// OnChange is called once, when the broker starts. The plugin calls changed when a
	// strategy is added, removed or replaced, from any goroutine, but not in a queue's
	// turn, that is, not from Attach or a callback. When changed returns, the queues of the
	// strategy have been attached again. With recompute, OnRestamp is then called for their
	// messages. It is not called for changes of a queue's settings.
	OnChange(changed func(strategy string, recompute bool))
}

// Digest returns the first 8 bytes of the SHA-256 of the code that set the verdict's Deadline, as a big-endian number. It is stored with
// the message and shown in events and traces. 0 = not set by such code.
func Digest(v *hook.Verdict) uint64 { return *v.Guest(access.Key{}) }

// SetDigest sets the digest of a verdict. Only the queue's expiry strategy may call it.
func SetDigest(v *hook.Verdict, digest uint64) { *v.Guest(access.Key{}) = digest }

// Signed returns v with a digest.
func Signed(v hook.Verdict, digest uint64) hook.Verdict {
	SetDigest(&v, digest)
	return v
}

// MessageDigest returns the digest of the code that set the message's deadline.
func MessageDigest(m *hook.Message) uint64 {
	digest, _, _ := m.Guest(access.Key{})
	return *digest
}

// SetMessageDigest sets the digest of a message; the broker and test kits call it.
func SetMessageDigest(m *hook.Message, digest uint64) {
	d, _, _ := m.Guest(access.Key{})
	*d = digest
}

// Restore sets a verdict's Deadline, State and digest to the ones in force.
func Restore(v *hook.Verdict, m *hook.Message) {
	v.Deadline, v.State = m.Deadline, m.State
	SetDigest(v, MessageDigest(m))
}

// Decision is the decision of others' code about one message.
type Decision struct {
	Policy  string        // its name
	Digest  string        // of its module, "sha256:" and hexadecimal digits
	Hook    string        // the hook that was called, such as "on_enqueue"
	Took    time.Duration // for the whole batch
	Batch   int           // messages of the same call
	Fuel    int64         // used by the call
	Verdict hook.Verdict
	Failure string // why the policy gave no verdict; "" = it gave one
	// FailureKind is the kind of the failure, one of few, such as "trap"; "" = there was no failure.
	FailureKind string
	// Attributes are the policy's own attributes, alternating names and values.
	Attributes []string
}

// Witness is a [hook.Source] that receives decisions.
type Witness interface {
	// Decided receives a decision about message i, and must not retain it.
	Decided(i int, d *Decision)
}

// Decided adds a decision to the message's trace. If the message is not traced, it does nothing. It does not retain the decision.
func Decided(m *hook.Message, d *Decision) {
	if !m.Traced {
		return
	}
	_, source, i := m.Guest(access.Key{})
	if w, ok := source.(Witness); ok {
		w.Decided(i, d)
	}
}
