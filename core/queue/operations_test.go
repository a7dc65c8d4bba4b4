package queue

import (
	"bytes"
	"slices"
	"testing"

	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/sdk/hook"
)

// While the disk is full, a journal writes commits without operations that have become superfluous. None of the others may be lost.
func TestOperations(t *testing.T) {
	s := &slot{}
	enqueued := func(kind byte, r Ref) []byte {
		return append(appendEnqueued(nil, kind, 7, r, 1, 2, s, 5), "12345"...)
	}
	var runs refRuns
	for _, r := range []Ref{20, 21, 30} {
		runs.add(r, 1)
	}
	runs.end()
	record := func(refs ...uint64) (rs []journal.Record) {
		for _, r := range refs {
			rs = append(rs, journal.Record{Queue: 7, Ref: r})
		}
		return rs
	}
	gone := func(refs ...uint64) (rs []journal.Run) {
		for _, r := range record(refs...) {
			rs = append(rs, journal.Run{Record: r, Count: 1})
		}
		return rs
	}
	twentyOn := journal.Run{Record: journal.Record{Queue: 7, Ref: 20}, Count: 2, Later: true}
	thirty := journal.Run{Record: journal.Record{Queue: 7, Ref: 30}, Count: 1, Later: true}
	all := []struct {
		op      []byte
		part    journal.Parts
		brought []journal.Record
		settled []journal.Run
	}{
		{op: appendReturned(nil, 7, 1, 2)},
		{op: enqueued(opEnqueued, 3), part: journal.Records, brought: record(3)},
		{op: enqueued(opEnqueuedAlike, 4), part: journal.Records, brought: record(4)},
		{op: appendDeadlineSet(nil, 7, 1, 2, strategyData{}, 0)},
		{op: appendSettled(nil, 7, []Ref{5, 6}), part: journal.Settlements, settled: gone(5, 6)},
		{op: appendDeadlineSet(nil, 7, 1, 2, strategyData{}, hasDigest)},
		{op: appendDelivered(nil, 7, 1, 2), part: journal.Marks},
		{op: appendRuns(nil, 7, runs.b), settled: []journal.Run{twentyOn, thirty}},
		{op: appendDeadLettering(nil, 7, 1, hook.ReasonExpired)},
		{op: appendAsks(nil, 7, 1)},
		{op: appendHeld(nil, 7, 1, 2, 0, 3)},
		{op: []byte("\x00definitions")},
	}
	var ops []byte
	var brought []journal.Record
	var settled []journal.Run
	for _, o := range all {
		ops, brought, settled = append(ops, o.op...), append(brought, o.brought...), append(settled, o.settled...)
	}
	for parts := range journal.Records | journal.Settlements | journal.Marks + 1 {
		var want []byte
		for _, o := range all {
			if o.part&parts == 0 {
				want = append(want, o.op...)
			}
		}
		if got := Without(slices.Clone(ops), parts); !bytes.Equal(got, want) {
			t.Errorf("without %b: %x, want %x", parts, got, want)
		}
	}
	if got, want := slices.Collect(Marks(ops)), (journal.Mark{Record: record(uint64(ref(1, 0)))[0], Before: uint64(ref(1, 2))}); len(got) != 1 || got[0] != want {
		t.Errorf("they mark %v, want %v", got, want)
	}
	gotBrought, gotSettled := Records(ops)
	if got := slices.Collect(gotBrought); !slices.Equal(got, brought) {
		t.Errorf("they bring %v, want %v", got, brought)
	}
	if got := slices.Collect(gotSettled); !slices.Equal(got, settled) {
		t.Errorf("they settle %v, want %v", got, settled)
	}
}
