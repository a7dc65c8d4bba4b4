package wasm

import "github.com/curfewmq/curfew/sdk/hook"

// Change is a kind of change of a policy.
type Change uint8

// The changes.
const (
	PolicyLoaded     Change = iota // a new name
	PolicyReloaded                 // another version, or the same one again
	PolicyRolledBack               // the new version failed too often; the previous one is in force again
	PolicyUnloaded
	BreakerOpened // it fails too often and is not called for a while
	BreakerClosed // it works again
)

// Notice reports a change of a policy.
type Notice struct {
	Change   Change
	Policy   string
	Digest   string       // of the version in force, or of the unloaded one
	Previous string       // digest of the version in force before; "" = none
	Beside   string       // strategy that it shadows; "" = it is not a shadow
	Until    hook.Instant // with BreakerOpened: the next trial
}

// notify passes a notice to the broker.
func (p *policy) notify(n Notice) {
	if p.host.env.Notice == nil || p.standIn {
		return
	}
	n.Policy, n.Beside = p.name, p.beside
	p.host.env.Notice(n)
}

// digest returns the digest of the version in force; "" if there is none.
func (p *policy) digest() string {
	if v := p.active.Load(); v != nil {
		return v.module.Digest
	}
	return ""
}
