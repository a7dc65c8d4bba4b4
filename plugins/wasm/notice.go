package wasm

import "github.com/curfewmq/curfew/sdk/hook"

// Change is what can happen to a policy.
type Change uint8

// The changes.
const (
	PolicyLoaded     Change = iota // there was none of that name
	PolicyReloaded                 // another version is in force, or the same anew
	PolicyRolledBack               // the new version failed too often, the one before is in force again
	PolicyUnloaded
	BreakerOpened // it fails too often and is not asked for a while
	BreakerClosed // it failed too often, and answers again
)

// Notice is what happened to a policy.
type Notice struct {
	Change   Change
	Policy   string
	Digest   string       // of the version in force; of the one that was, if it was unloaded
	Previous string       // digest of the version that was in force before; "" = there was none
	Beside   string       // strategy that it runs beside, unheard; "" = it is no shadow
	Until    hook.Instant // with BreakerOpened, when it is tried again
}

// notify tells whoever wants to know.
func (p *policy) notify(n Notice) {
	if p.host.env.Notice == nil {
		return
	}
	n.Policy, n.Beside = p.name, p.beside
	p.host.env.Notice(n)
}

// digest is that of the version in force; "" if there is none.
func (p *policy) digest() string {
	if v := p.active.Load(); v != nil {
		return v.module.Digest
	}
	return ""
}
