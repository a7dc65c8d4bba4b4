package app

import (
	"context"
	"fmt"
	"net/http"

	"github.com/curfewmq/curfew/core/metrics"
	"github.com/curfewmq/curfew/core/mgmt"
	"github.com/curfewmq/curfew/core/rabbit"
)

// measure collects metrics of the broker and returns the handler of requests for them. cluster returns the cluster's name.
func (s *service) measure(ctx context.Context, o *mgmt.Options, cluster func() string) (http.Handler, error) {
	options := metrics.Options{
		Version: version, Commit: builtAt(), RabbitMQ: rabbit.Version, Node: o.Node, Cluster: cluster, Store: o.Store, AMQP: o.AMQP, Clock: o.Clock,
		Recorder: s.telemetry.Recorder, Exported: s.telemetry.Exported, Alarms: o.Alarms, Machine: s.measureMachine,
		Certificates: presented(o.Listeners),
		Policies:     s.policies(), Faults: s.running.chain.Faults, Filtered: s.running.chain.Filtered, Queues: s.running.Telemetry.Metrics.Queues,
	}
	if o.Replicas != nil {
		options.Replicas = o.Replicas.View
	}
	c := metrics.New(options)
	h, err := s.telemetry.Serve(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return h, nil
}

func (s *service) measureMachine() metrics.Machine {
	m := s.machine()
	return metrics.Machine{Memory: m.Memory, MemoryLimit: m.MemoryLimit, DiskFree: m.DiskFree, DiskLimit: m.DiskLimit, Files: m.Files, FilesLimit: m.FilesLimit}
}

// builtAt returns the commit that the program was built from; "" = unknown.
func builtAt() string {
	var d description
	d.readCommit()
	return d.Commit
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

// policies returns a function that describes the policies in WebAssembly; nil where there can be none.
func (s *service) policies() func() []metrics.Policy {
	b, ok := s.broker.(interface{ Policies() []metrics.Policy })
	if !ok {
		return nil
	}
	return b.Policies
}

// Policies describes the policies in WebAssembly.
func (n *node) Policies() []metrics.Policy {
	if n.wasm == nil || n.wasm.Host == nil {
		return nil
	}
	var all []metrics.Policy
	for _, i := range n.wasm.List() {
		p := metrics.Policy{
			Name: i.Name, Digest: i.Digest, Loaded: i.Loaded, Calls: i.Calls, Messages: i.Messages, Fuel: i.FuelUsed, FuelLimit: i.MaxFuel,
			Failures: i.Errors, Open: i.Breaker == "open", Instances: i.Instances, Slots: i.Slots, Memory: i.Memory, Own: i.Counters,
		}
		if i.Shadow != nil {
			p.Shadow, p.Compared, p.Differing = true, i.Shadow.Compared, i.Shadow.Differing
		}
		all = append(all, p)
	}
	return all
}
