package vhost

import (
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
)

// Each field of a definition that was replayed took two closures, so that a restart allocated two thirds more for its queues
// and bindings.
func TestReadingFieldsAllocatesOnlyTheirList(t *testing.T) {
	q := definedQueue{name: "q", id: 1, args: amqp.Table{}}
	v, _ := newVHost(t)
	for d, err := range definition.Parse(amqp.AppendTable(nil, v.changes.define(opDeclareQueue, q.fields()...))) {
		must(t, err)
		var got definedQueue
		if n := testing.AllocsPerRun(100, func() { _ = read(d, got.fields()...) }); n > 1 || got.name != "q" {
			t.Errorf("%v allocations for %+v", n, got)
		}
	}
}
