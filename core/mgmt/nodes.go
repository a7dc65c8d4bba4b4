package mgmt

import (
	"encoding/json"
	"log/slog"
	"math"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/mgmt/drain"
	"github.com/curfewmq/curfew/core/mgmt/probe"
	"github.com/curfewmq/curfew/core/slab"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// nodeHandlers show this node, and change its limits until it ends.
type nodeHandlers struct {
	*Options
	started hook.Instant
	meters  *meters
	nodes   *nodes
	checks  *healthHandlers
	totals  *totals
}

// onNode is a handler for paths that name the node. It refuses the names of other nodes.
func (a *nodeHandlers) onNode(do handler) handler {
	return func(c *request) error {
		if c.vars["node"] != a.Node {
			return errNotFound
		}
		return do(c)
	}
}

func (a *nodeHandlers) list(c *request) error { return listObjects(c, []object{a.describe()}) }

func (a *nodeHandlers) one(c *request) error { return c.reply(a.describe()) }

type (
	nodeKey struct{}
	linkKey struct{ to wlog.NodeID }
)

func (a *nodeHandlers) describe() object {
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
		{"exchange_types", a.totals.exchangeTypes()},
		{"auth_mechanisms", []object{
			{{"name", "PLAIN"}, {"description", "SASL PLAIN authentication mechanism"}, {"enabled", true}},
			{{"name", "AMQPLAIN"}, {"description", "AMQPLAIN authentication mechanism"}, {"enabled", true}},
			{{"name", "EXTERNAL"}, {"description", "SASL EXTERNAL authentication mechanism: the client's certificate"}, {"enabled", a.CertificateLogin.On()}},
		}},
		{"applications", []object{{{"name", "curfew"}, {"description", a.Product}, {"version", a.Version}}}},
		{"contexts", a.totals.contexts()},
		{"partitions", []any{}},
		{"cluster_links", a.clusterLinks()},
		{"enabled_plugins", append([]string{}, a.Plugins...)},
		{"config_files", append([]string{}, m.ConfigFiles...)},
		{"log_files", append([]string{}, m.LogFiles...)},
		{"db_dir", m.DataDir},
		{"log_level", a.logLevel()},
		{"alarms", a.checks.alarmDetails(alarms)},
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
func (a *nodeHandlers) clusterLinks() []object {
	all := []object{}
	for _, n := range a.nodes.members() {
		if a.nodes.isSelf(&n) || !n.Up {
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
func (a *nodeHandlers) shards(alarms []string) []object {
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
func (a *nodeHandlers) memory(c *request) error {
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

// logLevels are RabbitMQ's names for levels. The lines of this broker's log have one of the first four.
var logLevels = []struct {
	name  string
	level slog.Level
}{
	{"debug", slog.LevelDebug},
	{"info", slog.LevelInfo},
	{"warning", slog.LevelWarn},
	{"error", slog.LevelError},
	{"critical", slog.LevelError + 4},
	{"none", math.MaxInt},
}

// logLevel returns RabbitMQ's name for the least level that is logged.
func (a *nodeHandlers) logLevel() any {
	if a.LogLevel == nil {
		return nil
	}
	for _, l := range logLevels {
		if a.LogLevel.Level() <= l.level {
			return l.name
		}
	}
	return nil
}

// setLogLevel sets the least level that is logged, until the configuration is read again: {"level": its name}.
func (a *nodeHandlers) setLogLevel(c *request) error {
	r := c.body()
	r.Only("level")
	r.Need("level")
	name := r.Text("level")
	if err := r.Err(); err != nil {
		return err
	}
	if name == "warn" {
		name = "warning" // as in the configuration
	}
	names := make([]string, len(logLevels))
	for i, l := range logLevels {
		names[i] = l.name
	}
	i := slices.Index(names, name)
	switch {
	case a.LogLevel == nil:
		return errNotFound
	case i < 0:
		return badRequest("level %.40s is not supported. Try one of %s", name, strings.Join(names, ", "))
	}
	said := a.Log.Enabled(c.r.Context(), slog.LevelInfo)
	if said {
		a.Log.Info("the log level is set", "level", name, "user", c.user.Name)
	}
	a.LogLevel.Set(logLevels[i].level)
	if !said {
		a.Log.Info("the log level is set", "level", name, "user", c.user.Name)
	}
	return c.done(nil)
}

// setMemoryWatermark sets the memory above which publishers wait, until the broker ends: {"absolute": bytes}, or {"relative": a
// fraction of the machine's memory}, from 0 to 1. With 0 they wait at once. RabbitMQ has no such path: its tools talk to the node.
func (a *nodeHandlers) setMemoryWatermark(c *request) error {
	bytes, err := a.watermark(c, 1)
	if err != nil {
		return err
	}
	a.AMQP.SetMemoryLimit(bytes)
	a.Log.Info("the limit for memory is set", "limit_bytes", bytes, "user", c.user.Name)
	return c.done(nil)
}

// setDiskLimit sets the free disk space below which publishers wait, until the broker ends: {"absolute": bytes}, or {"relative": a
// multiple of the machine's memory}. With 0 they never wait.
func (a *nodeHandlers) setDiskLimit(c *request) error {
	bytes, err := a.watermark(c, maxMultiple)
	if err != nil {
		return err
	}
	a.Store.SetDiskLimit(bytes)
	a.Log.Info("the limit for free disk space is set", "limit_bytes", bytes, "user", c.user.Name)
	return c.done(nil)
}

// maxMultiple is the highest multiple of the machine's memory that a limit for disk space may be.
const maxMultiple = 100

// watermark reads a number of bytes, or a multiple of the machine's memory up to most.
func (a *nodeHandlers) watermark(c *request, most float64) (bytes int64, err error) {
	r := c.body()
	if err := r.Err(); err != nil {
		return 0, err
	}
	if r.There("absolute") == r.There("relative") {
		return 0, badRequest("either absolute or relative is needed")
	}
	if r.There("absolute") {
		n, ok := r.Value("absolute").(json.Number)
		if bytes, err = n.Int64(); !ok || err != nil || bytes < 0 {
			return 0, badRequest("absolute: is not a number of bytes from 0 on")
		}
		return bytes, nil
	}
	n, ok := r.Value("relative").(json.Number)
	multiple, err := n.Float64()
	if !ok || err != nil || !(multiple >= 0 && multiple <= most) {
		return 0, badRequest("relative: is not a number from 0 to %g", most)
	}
	total := a.Machine().MemoryTotal
	if total == 0 && multiple > 0 {
		return 0, badRequest("relative: the machine does not tell how much memory it has; use absolute")
	}
	return int64(min(multiple*float64(total), math.MaxInt64/2)), nil
}

// drained is a handler for the drain of the broker.
func (a *nodeHandlers) drained(do handler) handler {
	return a.onNode(func(c *request) error {
		if a.Drain == nil {
			return errNotFound
		}
		return do(c)
	})
}

func (a *nodeHandlers) showDrain(c *request) error { return c.reply(a.Drain.Describe()) }

// beginDrain drains the broker, see the package's documentation.
func (a *nodeHandlers) beginDrain(c *request) error {
	r := c.body()
	r.Only("timeout_ms", "stop", "listening")
	o := drain.Order{Timeout: drain.DefaultTimeout, Stop: r.Flag("stop"), Listening: r.Flag("listening"), By: c.user.Name}
	if r.Has("timeout_ms") {
		ms := readNumber(r, "", "timeout_ms", drain.MinTimeout.Milliseconds(), drain.MaxTimeout.Milliseconds())
		o.Timeout = time.Duration(ms) * time.Millisecond
	}
	if err := r.Err(); err != nil {
		return err
	}
	if err := a.Drain.Begin(o); err != nil {
		return undrainable(err)
	}
	return c.reply(a.Drain.Describe())
}

// endDrain lets publishers and new connections in again.
func (a *nodeHandlers) endDrain(c *request) error {
	if err := a.Drain.End(c.user.Name); err != nil {
		return undrainable(err)
	}
	return c.done(nil)
}

// undrainable returns the answer of a broker that is ending, or whose addresses another process has taken.
func undrainable(err error) error {
	return &failure{http.StatusServiceUnavailable, "unavailable", err.Error()}
}
