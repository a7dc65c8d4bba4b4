package app

import (
	"strconv"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/mgmt"
	"github.com/curfewmq/curfew/plugins/wasm"
)

// lab gives the management API access to decisions of plugins and policies.
type lab struct {
	chain *chain.Chain
	host  *wasm.Host // nil: there are no policies
}

var _ mgmt.Lab = lab{}

// Differences implements [mgmt.Lab].
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

// Activate implements [mgmt.Lab].
func (l lab) Activate(name string, recompute bool) (warnings []string, err error) {
	if l.host == nil {
		return nil, errNoPolicies
	}
	i, err := l.host.Activate(name, recompute)
	return i.Warnings, moduleError(err)
}

// Back implements [mgmt.Lab].
func (l lab) Back(name string, recompute bool) (warnings []string, err error) {
	if l.host == nil {
		return nil, errNoPolicies
	}
	i, err := l.host.Back(name, recompute)
	return i.Warnings, moduleError(err)
}

// Strategies implements [mgmt.Lab].
func (l lab) Strategies() (names []string, standard string) {
	return l.chain.Strategies(), l.chain.DefaultStrategy()
}
