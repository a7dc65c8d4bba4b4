package broker

import (
	"context"
	"fmt"
	"net/http"

	"github.com/curfewmq/curfew/core/metrics"
	"github.com/curfewmq/curfew/core/mgmt"
	"github.com/curfewmq/curfew/core/rabbit"
)

// measure collects metrics of the broker and returns the handler of requests for them; nil = there is no exporter. cluster returns the
// cluster's name.
func (b *Broker) measure(ctx context.Context, o *mgmt.Options, cluster func() string) (http.Handler, error) {
	if b.o.Exporter == nil {
		return nil, nil
	}
	options := metrics.Options{
		Version: b.o.Program.Version, Commit: b.o.Program.Commit, RabbitMQ: rabbit.Version, Node: o.Node, Cluster: cluster, Store: o.Store, AMQP: o.AMQP, Clock: o.Clock,
		Recorder: b.o.Recorder, Exported: b.o.Exporter.Exported, Alarms: o.Alarms, Machine: b.measureMachine,
		Certificates: presented(o.Listeners),
		Faults:       b.o.Chain.Faults, Filtered: b.o.Chain.Filtered, Queues: b.running.Telemetry.Metrics.Queues,
	}
	if b.o.Policies != nil {
		options.Policies = b.o.Policies.Measure
	}
	if o.Replicas != nil {
		options.Replicas = o.Replicas.View
	}
	c := metrics.New(options)
	h, err := b.o.Exporter.Serve(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return h, nil
}

func (b *Broker) measureMachine() metrics.Machine {
	m := b.machine()
	return metrics.Machine{Memory: m.Memory, MemoryLimit: m.MemoryLimit, DiskFree: m.DiskFree, DiskLimit: m.DiskLimit, Files: m.Files, FilesLimit: m.FilesLimit}
}

// presented returns a function that lists the certificates of listeners.
func presented(listeners func() []mgmt.Listener) func() []metrics.Certificate {
	return func() (all []metrics.Certificate) {
		for _, l := range listeners() {
			if ends := l.Expires(); !ends.IsZero() {
				all = append(all, metrics.Certificate{Protocol: l.Protocol, Expires: ends})
			}
		}
		return all
	}
}
