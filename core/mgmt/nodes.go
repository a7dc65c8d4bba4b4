package mgmt

import (
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"

	"github.com/curfewmq/curfew/core/mgmt/probe"
	"github.com/curfewmq/curfew/core/slab"
	"github.com/curfewmq/curfew/core/wlog"
)

// onNode is a handler for paths that name the node. It refuses the names of other nodes.
func (a *API) onNode(do handler) handler {
	return func(c *request) error {
		if c.vars["node"] != a.Node {
			return errNotFound
		}
		return do(c)
	}
}

func (a *API) nodes(c *request) error { return listObjects(c, []object{a.describeNode()}) }

func (a *API) node(c *request) error { return c.reply(a.describeNode()) }

type (
	nodeKey struct{}
	linkKey struct{ to wlog.NodeID }
)

func (a *API) describeNode() object {
	m, alarms, churn := a.Machine(), a.Alarms(), a.AMQP.Sessions().Churn()
	o := object{
		{"name", a.Node},
		{"type", "disc"},
		{"running", true},
		{"being_drained", slices.Contains(alarms, probe.Draining)},
		{"os_pid", strconv.Itoa(os.Getpid())},
		{"uptime", a.Clock().Sub(a.started).Milliseconds()},
		{"processors", m.Processors},
		{"mem_limit", max(a.AMQP.MemoryLimit(), 0)},
		{"mem_in_use", a.AMQP.MemoryUsed()},
		{"mem_alarm", slices.Contains(alarms, "memory")},
		{"mem_calculation_strategy", "rss"},
		{"disk_free_alarm", slices.Contains(alarms, "disk")},
		{"disk_free_limit", a.Store.DiskLimit()},
		{"fd_total", m.FilesLimit},
		{"sockets_total", m.FilesLimit},
		{"proc_total", 1 << 20},
		{"run_queue", 0},
		{"rates_mode", "basic"},
		{"exchange_types", a.exchangeTypes()},
		{"auth_mechanisms", []object{
			{{"name", "PLAIN"}, {"description", "SASL PLAIN authentication mechanism"}, {"enabled", true}},
			{{"name", "AMQPLAIN"}, {"description", "AMQPLAIN authentication mechanism"}, {"enabled", true}},
			{{"name", "EXTERNAL"}, {"description", "SASL EXTERNAL authentication mechanism: the client's certificate"}, {"enabled", a.CertificateLogin.On()}},
		}},
		{"applications", []object{{{"name", "curfew"}, {"description", a.Product}, {"version", a.Version}}}},
		{"contexts", a.contexts()},
		{"partitions", []any{}},
		{"cluster_links", a.clusterLinks()},
		{"enabled_plugins", append([]string{}, a.Plugins...)},
		{"config_files", append([]string{}, m.ConfigFiles...)},
		{"log_files", append([]string{}, m.LogFiles...)},
		{"db_dir", m.DataDir},
		{"log_level", a.logLevel()},
		{"alarms", a.alarmDetails(alarms)},
		{"shards", a.shards(alarms)},
		{"net_ticktime", 0},
	}
	return a.meters.append(o, nodeKey{}, []namedCount{
		{"mem_used", "mem_used_details", int64(m.Memory)},
		{"fd_used", "fd_used_details", int64(m.Files)},
		{"sockets_used", "sockets_used_details", int64(a.AMQP.Connections())},
		{"proc_used", "proc_used_details", int64(runtime.NumGoroutine())},
		{"disk_free", "disk_free_details", int64(m.DiskFree)},
		{"connection_created", "connection_created_details", int64(churn.ConnectionsOpened.Load())},
		{"connection_closed", "connection_closed_details", int64(churn.ConnectionsClosed.Load())},
		{"channel_created", "channel_created_details", int64(churn.ChannelsOpened.Load())},
		{"channel_closed", "channel_closed_details", int64(churn.ChannelsClosed.Load())},
	})
}

// clusterLinks describes the existing connections to other nodes.
func (a *API) clusterLinks() []object {
	all := []object{}
	for _, n := range a.members() {
		if a.isSelf(&n) || !n.Up {
			continue
		}
		sent, received := int64(n.Link.Sent), int64(n.Link.Received)
		stats := a.meters.append(nil, linkKey{n.ID}, []namedCount{{"send_bytes", "send_bytes_details", sent}, {"recv_bytes", "recv_bytes_details", received}})
		o := object{{"name", n.Name}, {"recv_bytes", received}, {"send_bytes", sent}, {"stats", stats}}
		o = append(o, addressOf("peer", n.Link.Remote)...)
		all = append(all, append(o, addressOf("sock", n.Link.Local)...))
	}
	return all
}

// addressOf returns the members for an address; none if the address is unknown.
func addressOf(name string, a netip.AddrPort) object {
	if !a.IsValid() {
		return nil
	}
	return object{{name + "_addr", a.Addr().String()}, {name + "_port", int(a.Port())}}
}

// shards describes the logs of the data directory.
func (a *API) shards(alarms []string) []object {
	all := []object{}
	for _, l := range a.Store.Logs() {
		state := "ok"
		switch {
		case slices.Contains(alarms, "shard "+strconv.Itoa(int(l.Shard))):
			state = "failed"
		case l.Full:
			state = "full"
		case l.Low:
			state = "low"
		}
		all = append(all, object{
			{"shard", int(l.Shard)}, {"state", state}, {"segments", l.Disk.Segments}, {"bytes", l.Disk.Bytes}, {"live_bytes", l.Live}, {"pending_bytes", l.Pending},
		})
	}
	return all
}

// memory shows the uses of the process's memory, as far as they are known.
func (a *API) memory(c *request) error {
	m := a.Machine()
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	queues := uint64(max(slab.Used(), 0))
	return c.reply(object{{"memory", object{
		{"queue_procs", queues},
		{"other_system", heap.Sys - heap.HeapSys},
		{"other_proc", heap.HeapInuse},
		{"allocated_unused", heap.HeapIdle - heap.HeapReleased},
		{"strategy", "rss"},
		{"total", object{{"rss", m.Memory}, {"allocated", heap.Sys + queues}, {"erlang", heap.HeapInuse + queues}}},
	}}})
}
