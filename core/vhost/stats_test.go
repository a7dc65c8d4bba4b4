package vhost

import (
	"testing"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

func TestDeadLetterCounts(t *testing.T) {
	v := &VHost{}
	safe := &hook.Target{AtLeastOnce: true}
	removals := []telemetry.Removal{
		{Reason: hook.ReasonExpired},
		{Reason: hook.ReasonExpired, Target: &hook.Target{}, Outcome: telemetry.NoExchange},
		{Reason: hook.ReasonExpired, Target: &hook.Target{}, Outcome: telemetry.Cycle},
		{Reason: hook.ReasonExpired, Target: &hook.Target{}, Outcome: telemetry.DeadLettered},
		{Reason: hook.ReasonMaxLen, Target: &hook.Target{}, Outcome: telemetry.Unroutable},
		{Reason: hook.ReasonMaxLen, Target: safe, Outcome: telemetry.DeadLettered},
		{Reason: hook.ReasonMaxLen, Target: safe, Outcome: telemetry.Unroutable},
	}
	v.host.removals.add(&queue.Config{Profile: &queue.Profile{Kind: queue.Quorum}}, removals)
	v.host.removals.add(&queue.Config{Profile: &queue.Profile{Kind: queue.Classic}}, []telemetry.Removal{removals[0], removals[5]})
	var want DeadLetterCounts
	want[0][DeadLetterDisabled][hook.ReasonExpired] = 1
	want[0][AtLeastOnce][hook.ReasonMaxLen] = 1
	want[1][DeadLetterDisabled][hook.ReasonExpired] = 2
	want[1][AtMostOnce][hook.ReasonExpired] = 2
	want[1][AtMostOnce][hook.ReasonMaxLen] = 1
	want[1][AtLeastOnce][hook.ReasonMaxLen] = 2
	if got, confirmed := v.DeadLetters(); got != want || confirmed != [queue.Types]uint64{queue.QuorumType: 1, queue.ClassicType: 1} {
		t.Errorf("got %v with %d confirmed, want %v with 1 each", got, confirmed, want)
	}
}
