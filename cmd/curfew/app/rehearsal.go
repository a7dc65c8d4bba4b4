package app

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/mgmt"
	"github.com/curfewmq/curfew/core/simulation"
	"github.com/curfewmq/curfew/plugins/wasm"
	"github.com/curfewmq/curfew/sdk/hook"
)

// rehearsal holds the state of one simulation. It belongs to one goroutine. It implements [mgmt.Rehearsal].
type rehearsal struct {
	stage    simulation.Stage
	policies *wasm.Rehearsal // nil: there are none
	shadow   bool            // the candidate is a shadow
	deciders []string
	notes    []string
}

var _ mgmt.Rehearsal = (*rehearsal)(nil)

func (l lab) Rehearse(m *mgmt.Module) (mgmt.Rehearsal, error) {
	r := &rehearsal{}
	if m != nil && l.host == nil {
		return nil, errNoPolicies
	}
	if l.host != nil {
		c, err := candidateOf(m)
		if err != nil {
			return nil, err
		}
		if r.policies, err = l.host.Rehearse(c); err != nil {
			return nil, moduleError(err)
		}
		r.shadow = c != nil && c.Beside != ""
	}
	r.stage = simulation.Stage{
		Chain:    l.chain.Rehearse(chain.Rehearsal{Replace: r.replace(l.host), Observe: r.observe, OnPanic: r.panicked}),
		Opinions: r.opinions, Notes: r.takeNotes, Deciders: r.takeDeciders,
	}
	return r, nil
}

// candidateOf returns the module to be tried; nil = there is none.
func candidateOf(m *mgmt.Module) (*wasm.Candidate, error) {
	if m == nil {
		return nil, nil
	}
	o, err := optionsOf(m)
	if err != nil {
		return nil, err
	}
	return &wasm.Candidate{Name: m.Name, Module: m.Module, Options: o, Beside: m.Shadow}, nil
}

func (r *rehearsal) replace(host *wasm.Host) func(hook.Plugin) hook.Plugin {
	return func(p hook.Plugin) hook.Plugin {
		if host != nil && p == hook.Plugin(host) {
			return r.policies
		}
		return nil
	}
}

// observe records which plugins change the verdict.
func (r *rehearsal) observe(plugin string, before, after []hook.Verdict) {
	if len(before) > 0 && before[0] != after[0] {
		r.deciders = append(r.deciders, plugin)
	}
}

func (r *rehearsal) panicked(plugin, point string, v any, _ []byte) {
	r.notes = append(r.notes, fmt.Sprintf("plugin %s panicked in %s: %.1000v", plugin, point, v))
}

func (r *rehearsal) takeDeciders() []string {
	d := r.deciders
	r.deciders = nil
	return d
}

func (r *rehearsal) takeNotes() []string {
	all := r.notes
	r.notes = nil
	if r.policies == nil {
		return all
	}
	if err := r.policies.Err(); err != nil {
		all = append(all, err.Error())
	}
	return append(all, r.policies.Notes()...)
}

func (r *rehearsal) opinions() (all []simulation.Opinion) {
	if r.policies == nil {
		return nil
	}
	for _, o := range r.policies.Opinions() {
		all = append(all, simulation.Opinion{Policy: o.Policy, Digest: o.Digest, InForce: o.InForce, Verdict: o.Shadow, Differs: o.Differs})
	}
	return all
}

func (r *rehearsal) Stage() *simulation.Stage { return &r.stage }

func (r *rehearsal) Candidate() json.RawMessage {
	if r.policies == nil {
		return nil
	}
	i, ok := r.policies.Info()
	if !ok {
		return nil
	}
	b, err := json.Marshal(i)
	if err != nil {
		panic(fmt.Errorf("what is known of a policy: %w", err)) // its fields are plain, or have been checked
	}
	return b
}

func (r *rehearsal) Strategy() string {
	if r.policies == nil || r.shadow {
		return ""
	}
	i, _ := r.policies.Info()
	return i.Strategy
}

func (r *rehearsal) Close() {
	if r.policies != nil {
		r.policies.Close()
	}
}

// lab gives the management API access to decisions of plugins and policies. It implements [mgmt.Lab].
type lab struct {
	chain *chain.Chain
	host  *wasm.Host // nil: there are no policies
}

var _ mgmt.Lab = lab{}

func (l lab) Differences(name string, after uint64, count int) (mgmt.Differences, error) {
	if l.host == nil {
		return mgmt.Differences{}, errNoPolicies
	}
	found, err := l.host.Differences(name, after, count)
	if err != nil {
		return mgmt.Differences{}, moduleError(err)
	}
	all := mgmt.Differences{Compared: found.Compared, Differing: found.Differing, PerSecond: wasm.DifferencesPerSecond}
	for i := range found.Latest {
		all.Latest = append(all.Latest, difference(&found.Latest[i]))
	}
	return all, nil
}

func difference(d *wasm.Difference) mgmt.Difference {
	m := &d.Message
	return mgmt.Difference{
		ID: d.ID, At: d.At, VHost: d.VHost, Queue: d.Queue, Strategy: d.Strategy, Hook: d.Hook,
		Exchange: m.Exchange, RoutingKey: m.RoutingKey, Properties: properties(m), Headers: m.Headers, HeadersSize: m.HeadersSize, Size: m.Size,
		Enqueued: m.Enqueued, Deadline: m.Deadline, Deliveries: m.Deliveries, Redelivered: m.Redelivered,
		Active: d.Active, Shadow: d.Shadow, ActiveDigest: d.ActiveDigest, ShadowDigest: d.ShadowDigest,
	}
}

var errNoPolicies = &mgmt.ModuleError{Kind: mgmt.NoModule, Text: "the plugin wasm is not in plugins.chain"}

// properties returns the properties that a message has, with the management API's names.
func properties(m *wasm.DifferenceMessage) (all []mgmt.DifferenceProperty) {
	for _, p := range [...]mgmt.DifferenceProperty{
		{Name: "app_id", Value: m.AppID},
		{Name: "user_id", Value: m.UserID},
		{Name: "type", Value: m.Type},
		{Name: "message_id", Value: m.MessageID},
		{Name: "expiration", Value: m.Expiration},
		{Name: "correlation_id", Value: m.CorrelationID},
	} {
		if p.Value != "" {
			all = append(all, p)
		}
	}
	if n, err := strconv.ParseUint(m.Timestamp, 10, 64); err == nil {
		all = append(all, mgmt.DifferenceProperty{Name: "timestamp", Value: n})
	}
	if m.Priority > 0 {
		all = append(all, mgmt.DifferenceProperty{Name: "priority", Value: int(m.Priority)})
	}
	if m.Persistent {
		all = append(all, mgmt.DifferenceProperty{Name: "delivery_mode", Value: 2})
	}
	return all
}

func (l lab) Activate(name string, recompute bool) (warnings []string, err error) {
	if l.host == nil {
		return nil, errNoPolicies
	}
	i, err := l.host.Activate(name, recompute)
	return i.Warnings, moduleError(err)
}

func (l lab) Back(name string, recompute bool) (warnings []string, err error) {
	if l.host == nil {
		return nil, errNoPolicies
	}
	i, err := l.host.Back(name, recompute)
	return i.Warnings, moduleError(err)
}

func (l lab) Strategies() (names []string, standard string) {
	return l.chain.Strategies(), l.chain.DefaultStrategy()
}
