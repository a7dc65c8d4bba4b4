package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/cmd/curfew/printable"
	"github.com/curfewmq/curfew/core/mgmt/probe"
)

// report is a result with sections: as text, and as JSON for programs.
type report struct {
	text  strings.Builder
	facts map[string]any
}

func (r *report) chapter(title string) {
	if r.text.Len() > 0 {
		r.text.WriteByte('\n')
	}
	fmt.Fprintf(&r.text, "%s\n\n", printable.Text(title))
}

func (r *report) line(format string, args ...any) {
	r.text.WriteString(printable.Lines(fmt.Sprintf(format, args...)) + "\n")
}

// items writes a line for each item, or "(none)".
func (r *report) items(all []string) {
	for _, item := range all {
		r.line(" * %s", item)
	}
	if len(all) == 0 {
		r.line("(none)")
	}
}

// copy adds members of an answer to the JSON, under the API's names.
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
	_, err = fmt.Fprintf(c.program.Stdout, "%s\n", printable.JSON(b))
	return err
}

// units are the values of --unit.
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

// node returns the API's overview of the broker, and its description of the node.
func (c *call) node(ctx context.Context) (overview, node object, err error) {
	overview, all, err := c.nodes(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, n := range all {
		if n.text("name") == overview.text("node") {
			return overview, n, nil
		}
	}
	return overview, object{}, nil
}

// nodes returns the API's overview of the broker, and its descriptions of all nodes of the cluster.
func (c *call) nodes(ctx context.Context) (overview object, all []object, err error) {
	if overview, err = c.overview(ctx); err != nil {
		return nil, nil, err
	}
	return overview, all, c.api.get(ctx, path("nodes"), &all)
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
	policies, err := c.modules(ctx, node)
	if err != nil {
		return err
	}
	c.banner("Status of node %s ...", overview.text("node"))
	r := &report{facts: make(map[string]any)}
	r.runtime(overview, node)
	r.modules(policies)
	r.files(node)
	r.shards(c, node)
	r.resources(c, node)
	r.totals(overview, len(vhosts))
	r.listeners(overview, node.text("name"))
	return c.printReport(r)
}

func (r *report) runtime(overview, node object) {
	r.chapter("Runtime")
	r.line("OS PID: %s", node.text("os_pid"))
	r.line("Uptime (seconds): %d", node.number("uptime")/1000)
	if node["being_drained"] != nil {
		r.line("Is under maintenance?: %s", node["being_drained"])
		r.facts["is_under_maintenance"] = node["being_drained"]
	}
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
	r.facts["active_plugins"] = append([]string{}, stringList(node["enabled_plugins"])...)
}

// modules returns the expiry policies of a broker whose enabled plugins include wasm; RabbitMQ has none.
func (c *call) modules(ctx context.Context, node object) (all []object, err error) {
	if !slices.Contains(stringList(node["enabled_plugins"]), "wasm") {
		return nil, nil
	}
	if err = c.api.get(ctx, path("wasm", "policies"), &all); isRefusal(err, http.StatusNotFound) {
		return nil, nil
	}
	return all, err
}

// digestLength is how many characters of a module's digest are shown.
const digestLength = 16

func (r *report) modules(all []object) {
	if all == nil {
		return
	}
	r.chapter("Expiry policies")
	var lines []string
	facts := []map[string]any{}
	for _, p := range all {
		line := shown(p.text("name"))
		if d := p.text("digest"); d != "" {
			line += ", sha256 " + shown(d[:min(len(d), digestLength)])
		}
		var beside object
		if json.Unmarshal(p["shadow"], &beside) == nil && beside != nil {
			line += ", a shadow beside " + shown(beside.text("strategy"))
		}
		switch {
		case string(p["loaded"]) == "false":
			line += ", not loaded"
		case p.text("breaker") == "open":
			line += ", not asked since it has failed"
		}
		if e := p.text("last_error"); e != "" {
			line += ": " + shown(e)
		}
		lines = append(lines, line)
		facts = append(facts, map[string]any{
			"name": p["name"], "digest": p["digest"], "loaded": p["loaded"], "breaker": p["breaker"], "shadow": p["shadow"], "last_error": p["last_error"],
		})
	}
	r.items(lines)
	r.facts["expiry_policies"] = facts
}

// shards writes the state of the logs in the data directory.
func (r *report) shards(c *call, node object) {
	all := objects(node["shards"])
	if all == nil {
		return
	}
	r.chapter("Logs of the data directory")
	for _, s := range all {
		about := "messages"
		if s.number("shard") == 0 {
			about = "definitions"
		}
		r.line("Shard %d (%s): %s, %s of which %s are in use", s.number("shard"), about, shown(s.text("state")), c.bytes(s.number("bytes")), c.bytes(s.number("live_bytes")))
	}
	r.facts["shards"] = node["shards"]
}

func (r *report) files(node object) {
	r.chapter("Data directory")
	r.line("Node data directory: %s", node.text("db_dir"))
	r.chapter("Config files")
	r.items(stringList(node["config_files"]))
	r.chapter("Log file(s)")
	r.items(stringList(node["log_files"]))
	r.facts["data_directory"] = node["db_dir"]
	r.facts["config_files"] = append([]string{}, stringList(node["config_files"])...)
	if level := node.text("log_level"); level != "" {
		r.line("\nLog level: %s", shown(level))
		r.facts["log_level"] = level
	}
	r.facts["log_files"] = append([]string{}, stringList(node["log_files"])...)
}

// plainAlarms returns the node's alarms as rabbitmqctl prints them.
func plainAlarms(node object) []string {
	all := []string{}
	for _, a := range []struct{ member, text string }{
		{"mem_alarm", "Memory alarm on node "}, {"disk_free_alarm", "Free disk space alarm on node "},
	} {
		if string(node[a.member]) == "true" {
			all = append(all, a.text+node.text("name"))
		}
	}
	return all
}

// alarms returns the node's alarms as text, with facts that rabbitmqctl does not print: the missing disk space, and the logs that failed.
func alarms(c *call, node object) []string {
	all := plainAlarms(node)
	if n := len(all); n > 0 && string(node["disk_free_alarm"]) == "true" {
		all[n-1] += shortage(c, node)
	}
	for _, s := range objects(node["shards"]) {
		if s.text("state") == "failed" {
			all = append(all, fmt.Sprintf("Log failed: shard %d, which a restart of the broker reads again", s.number("shard")))
		}
	}
	for _, a := range objects(node["alarms"]) {
		switch a.text("resource") {
		case probe.Alone:
			all = append(all, "No majority: fewer than two nodes reach one another, so no client is served by node "+shown(node.text("name")))
		case probe.Clock:
			all = append(all, "Wrong clock on node "+shown(node.text("name"))+", which owns nothing until its clock is set and it is started again")
		}
	}
	return all
}

// shortage describes where disk space is missing, and how much is needed.
func shortage(c *call, node object) string {
	for _, a := range objects(node["alarms"]) {
		if string(a["out_of_files"]) == "true" {
			return ": no more files can be opened, whatever space there is: the limit of open files is too low for the connections"
		}
		if a.number("needed_bytes") == 0 {
			continue
		}
		free := "an unknown amount"
		if string(a["free_bytes"]) != "null" {
			free = c.bytes(a.number("free_bytes"))
		}
		where := a.text("path")
		if dir := node.text("db_dir"); strings.HasSuffix(dir, "/"+where) { // the data directory is a relative path
			where = dir
		}
		return fmt.Sprintf(": %s has %s free, and needs %s", shown(where), free, c.bytes(a.number("needed_bytes")))
	}
	return ""
}

func (r *report) resources(c *call, node object) {
	r.chapter("Alarms")
	r.items(alarms(c, node))
	r.chapter("Memory")
	r.line("Total memory used: %s", c.bytes(node.number("mem_used")))
	if used := node.number("mem_in_use"); used > 0 {
		r.line("In use, which the watermark limits: %s", c.bytes(used))
	}
	r.line("Memory high watermark: %s", c.bytes(node.number("mem_limit")))
	r.chapter("File Descriptors")
	r.line("Total: %d, limit: %d", node.number("fd_used"), node.number("fd_total"))
	r.line("Sockets: %d, limit: %d", node.number("sockets_used"), node.number("sockets_total"))
	r.chapter("Free Disk Space")
	r.line("Low free disk space watermark: %s", c.bytes(node.number("disk_free_limit")))
	r.line("Free disk space: %s", c.bytes(node.number("disk_free")))
	r.facts["alarms"] = plainAlarms(node)
	r.facts["memory"] = map[string]any{"total": node["mem_used"]}
	r.facts["vm_memory_high_watermark_limit"] = node["mem_limit"]
	r.facts["file_descriptors"] = map[string]any{
		"total_used": node["fd_used"], "total_limit": node["fd_total"], "sockets_used": node["sockets_used"], "sockets_limit": node["sockets_total"],
	}
	if details := objects(node["alarms"]); details != nil {
		r.facts["alarm_details"] = details
	}
	r.copy(node, "disk_free", "disk_free_limit")
}

func (r *report) totals(overview object, vhosts int) {
	var totals object
	_ = json.Unmarshal(overview["object_totals"], &totals) // if missing, all are 0
	r.chapter("Totals")
	r.line("Connection count: %d", totals.number("connections"))
	r.line("Queue count: %d", totals.number("queues"))
	r.line("Virtual host count: %d", vhosts)
	r.facts["totals"] = map[string]any{
		"connection_count": totals.number("connections"), "queue_count": totals.number("queues"), "virtual_host_count": vhosts,
	}
}

// purposes are the descriptions of protocols that rabbitmqctl prints.
var purposes = map[string]string{
	"amqp": "AMQP 0-9-1", "amqp/ssl": "AMQP 0-9-1 over TLS",
	"http": "HTTP API", "https": "HTTP API over TLS (HTTPS)", "clustering": "inter-node and CLI tool communication",
}

// listeners lists the listeners of a node; with an empty name those of all nodes, each with its node.
func (r *report) listeners(overview object, node string) {
	var all []object
	_ = json.Unmarshal(overview["listeners"], &all) // if missing, there are none
	r.chapter("Listeners")
	facts := []map[string]any{}
	for _, l := range all {
		if node != "" && l.text("node") != node {
			continue
		}
		address := l.text("ip_address")
		if strings.Contains(address, ":") {
			address = "[" + address + "]"
		}
		line := fmt.Sprintf("nterface: %s, port: %d, protocol: %s, purpose: %s", address, l.number("port"), l.text("protocol"), purpose(l.text("protocol")))
		if node == "" {
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
	overview, nodes, err := c.nodes(ctx)
	if err != nil {
		return err
	}
	c.banner("Cluster status of node %s ...", overview.text("node"))
	all, running, plain, raised, versions := []string{}, []string{}, []string{}, []string{}, map[string]any{}
	for _, n := range nodes {
		name := n.text("name")
		all = append(all, name)
		if string(n["running"]) == "false" {
			continue
		}
		running = append(running, name)
		plain, raised = append(plain, plainAlarms(n)...), append(raised, alarms(c, n)...)
		versions[name] = map[string]any{"rabbitmq_version": overview["rabbitmq_version"]}
	}
	r := &report{facts: map[string]any{
		"cluster_name": overview["cluster_name"], "disk_nodes": all, "running_nodes": running, "ram_nodes": []string{},
		"alarms": plain, "partitions": map[string]any{}, "versions": versions,
	}}
	r.chapter("Basics")
	r.line("Cluster name: %s", overview.text("cluster_name"))
	r.names("Disk Nodes", all)
	r.names("Running Nodes", running)
	r.chapter("Versions")
	for _, name := range running {
		r.line("%s: RabbitMQ %s", name, overview.text("rabbitmq_version"))
	}
	r.chapter("Alarms")
	r.items(raised)
	r.chapter("Network Partitions")
	r.line("(none)")
	r.listeners(overview, "")
	return c.printReport(r)
}

// names writes a section with names.
func (r *report) names(title string, all []string) {
	r.chapter(title)
	for _, name := range all {
		r.line("%s", name)
	}
}
