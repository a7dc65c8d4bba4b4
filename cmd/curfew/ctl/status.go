package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// report is a result in chapters: text for people, and the same facts for programs.
type report struct {
	text  strings.Builder
	facts map[string]any
}

func (r *report) chapter(title string) {
	if r.text.Len() > 0 {
		r.text.WriteByte('\n')
	}
	fmt.Fprintf(&r.text, "%s\n\n", title)
}

func (r *report) line(format string, args ...any) { fmt.Fprintf(&r.text, format+"\n", args...) }

// items writes a line for each item, or "(none)".
func (r *report) items(all []string) {
	for _, item := range all {
		r.line(" * %s", item)
	}
	if len(all) == 0 {
		r.line("(none)")
	}
}

// copy adds facts that have the API's names.
func (r *report) copy(from object, names ...string) {
	for _, name := range names {
		r.facts[name] = from[name]
	}
}

func (c *call) printReport(r *report) error {
	if c.out.banners() {
		_, err := fmt.Fprint(c.program.Stdout, r.text.String())
		return err
	}
	b, err := encode(r.facts)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.program.Stdout, "%s\n", b)
	return err
}

// units are those that --unit accepts.
var units = map[string]int64{"bytes": 1, "mb": 1e6, "gb": 1e9}

func (c *call) unit() string {
	if c.has("unit") {
		return strings.ToLower(c.value("unit"))
	}
	return "gb"
}

func checkUnit(c *call) error {
	if units[c.unit()] == 0 {
		return misused("unit '%s' is not supported. Please use one of: bytes, mb, gb", c.value("unit"))
	}
	return nil
}

func (c *call) bytes(n int64) string {
	unit := c.unit()
	if unit == "bytes" {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.4f %s", float64(n)/float64(units[unit]), unit)
}

// node returns what the API knows about the broker and its node.
func (c *call) node(ctx context.Context) (overview, node object, err error) {
	if overview, err = c.overview(ctx); err != nil {
		return nil, nil, err
	}
	var all []object
	if err := c.api.get(ctx, path("nodes"), &all); err != nil {
		return nil, nil, err
	}
	for _, n := range all {
		if n.text("name") == overview.text("node") {
			return overview, n, nil
		}
	}
	return overview, object{}, nil
}

func printStatus(ctx context.Context, c *call) error {
	overview, node, err := c.node(ctx)
	if err != nil {
		return err
	}
	var vhosts []object
	if err := c.api.get(ctx, path("vhosts")+"?columns=name", &vhosts); err != nil {
		return err
	}
	c.banner("Status of node %s ...", overview.text("node"))
	r := &report{facts: make(map[string]any)}
	r.runtime(overview, node)
	r.files(node)
	r.resources(c, node)
	r.totals(overview, len(vhosts))
	r.listeners(overview, false)
	return c.printReport(r)
}

func (r *report) runtime(overview, node object) {
	r.chapter("Runtime")
	r.line("OS PID: %s", node.text("os_pid"))
	r.line("Uptime (seconds): %d", node.number("uptime")/1000)
	r.line("RabbitMQ version: %s", overview.text("rabbitmq_version"))
	if name := overview.text("product_name"); name != "" {
		r.line("Product: %s %s", name, overview.text("product_version"))
	}
	r.line("Node name: %s", overview.text("node"))
	r.chapter("Plugins")
	r.line("Enabled plugins:\n")
	r.items(stringList(node["enabled_plugins"]))
	r.copy(overview, "rabbitmq_version", "product_name", "product_version", "node")
	r.facts["pid"] = node["os_pid"]
	r.facts["uptime"] = node.number("uptime") / 1000
	r.facts["active_plugins"] = stringList(node["enabled_plugins"])
}

func (r *report) files(node object) {
	r.chapter("Data directory")
	r.line("Node data directory: %s", node.text("db_dir"))
	r.chapter("Config files")
	r.items(stringList(node["config_files"]))
	r.chapter("Log file(s)")
	r.items(stringList(node["log_files"]))
	r.facts["data_directory"] = node["db_dir"]
	r.facts["config_files"] = stringList(node["config_files"])
	r.facts["log_files"] = stringList(node["log_files"])
}

func alarms(node object) []string {
	var all []string
	for _, a := range []struct{ member, text string }{
		{"mem_alarm", "Memory alarm on node "}, {"disk_free_alarm", "Free disk space alarm on node "},
	} {
		if string(node[a.member]) == "true" {
			all = append(all, a.text+node.text("name"))
		}
	}
	return all
}

func (r *report) resources(c *call, node object) {
	r.chapter("Alarms")
	r.items(alarms(node))
	r.chapter("Memory")
	r.line("Total memory used: %s", c.bytes(node.number("mem_used")))
	r.line("Memory high watermark: %s", c.bytes(node.number("mem_limit")))
	r.chapter("File Descriptors")
	r.line("Total: %d, limit: %d", node.number("fd_used"), node.number("fd_total"))
	r.line("Sockets: %d, limit: %d", node.number("sockets_used"), node.number("sockets_total"))
	r.chapter("Free Disk Space")
	r.line("Low free disk space watermark: %s", c.bytes(node.number("disk_free_limit")))
	r.line("Free disk space: %s", c.bytes(node.number("disk_free")))
	r.facts["alarms"] = append([]string{}, alarms(node)...)
	r.facts["memory"] = map[string]any{"total": node["mem_used"]}
	r.facts["vm_memory_high_watermark_limit"] = node["mem_limit"]
	r.facts["file_descriptors"] = map[string]any{
		"total_used": node["fd_used"], "total_limit": node["fd_total"], "sockets_used": node["sockets_used"], "sockets_limit": node["sockets_total"],
	}
	r.copy(node, "disk_free", "disk_free_limit")
}

func (r *report) totals(overview object, vhosts int) {
	var totals object
	_ = json.Unmarshal(overview["object_totals"], &totals) // missing: all are 0
	r.chapter("Totals")
	r.line("Connection count: %d", totals.number("connections"))
	r.line("Queue count: %d", totals.number("queues"))
	r.line("Virtual host count: %d", vhosts)
	r.facts["totals"] = map[string]any{
		"connection_count": totals.number("connections"), "queue_count": totals.number("queues"), "virtual_host_count": vhosts,
	}
}

// purposes are rabbitmqctl's descriptions of protocols.
var purposes = map[string]string{
	"amqp": "AMQP 0-9-1", "amqp/ssl": "AMQP 0-9-1 over TLS",
	"http": "HTTP API", "https": "HTTP API over TLS (HTTPS)",
}

func (r *report) listeners(overview object, withNode bool) {
	var all []object
	_ = json.Unmarshal(overview["listeners"], &all) // missing: there are none
	r.chapter("Listeners")
	facts := []map[string]any{}
	for _, l := range all {
		address := l.text("ip_address")
		if strings.Contains(address, ":") {
			address = "[" + address + "]"
		}
		line := fmt.Sprintf("nterface: %s, port: %d, protocol: %s, purpose: %s", address, l.number("port"), l.text("protocol"), purpose(l.text("protocol")))
		if withNode {
			r.line("Node: %s, i%s", l.text("node"), line)
		} else {
			r.line("I%s", line)
		}
		facts = append(facts, map[string]any{
			"interface": address, "node": l["node"], "port": l["port"], "protocol": l["protocol"], "purpose": purpose(l.text("protocol")),
		})
	}
	r.facts["listeners"] = facts
}

func purpose(protocol string) string { return cmp.Or(purposes[protocol], protocol) }

func printCluster(ctx context.Context, c *call) error {
	overview, node, err := c.node(ctx)
	if err != nil {
		return err
	}
	name := overview.text("node")
	c.banner("Cluster status of node %s ...", name)
	r := &report{facts: map[string]any{
		"cluster_name": overview["cluster_name"], "disk_nodes": []string{name}, "running_nodes": []string{name}, "ram_nodes": []string{},
		"alarms": append([]string{}, alarms(node)...), "partitions": map[string]any{},
		"versions": map[string]any{name: map[string]any{"rabbitmq_version": overview["rabbitmq_version"]}},
	}}
	r.chapter("Basics")
	r.line("Cluster name: %s", overview.text("cluster_name"))
	r.chapter("Disk Nodes")
	r.line("%s", name)
	r.chapter("Running Nodes")
	r.line("%s", name)
	r.chapter("Versions")
	r.line("%s: RabbitMQ %s", name, overview.text("rabbitmq_version"))
	r.chapter("Alarms")
	r.items(alarms(node))
	r.chapter("Network Partitions")
	r.line("(none)")
	r.listeners(overview, true)
	return c.printReport(r)
}
