package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// replacing is the time limit for a replacement, in which the new node copies all logs.
const replacing = 30 * time.Minute

// replacementPoll is the time between two requests for the progress of a replacement.
const replacementPoll = 5 * time.Second

func clusterCommands() []command {
	return []command{
		{
			name: "cluster", operands: "status | transfer [<shard>] <node> | rebalance | replace <address> [<number>]", scoped: true,
			check: checkClusterAction, run: runClusterAction, patience: replacing,
			about: "prints nodes and shards of a cluster, or changes their assignment",
			actions: []command{
				{
					name: "cluster status", about: "prints nodes with their versions, links and clocks, and shards with their owners",
					more: `
Of each node it says how many entries of a shard it lacks. One that is being let in catches up first, and has no vote until then.`,
				},
				{
					name: "cluster transfer", operands: "[<shard>] <node>", scoped: true, about: "hands a shard, or the shard of the virtual host, to another node",
					more: `
Clients of its virtual hosts connect again. The node is given by its name or its address, and has to have everything.`,
				},
				{
					name: "cluster rebalance", about: "hands each shard to its preferred node, to spread them over the nodes",
					more: `
Clients of virtual hosts in those shards connect again. Shards without clients go back by themselves after a node was started again.`,
				},
				{
					name: "cluster replace", operands: "<address> [<number>]", about: "gives the seat of a node with a lost disk to the new node at its address",
					more: `
It returns when the new node has everything. It may be repeated, and goes on where it was interrupted.
The number says which node is meant where several wait at the address.`,
				},
			},
			more: `
cluster status                      nodes, links and clocks; shards, their owners, and how far the others are behind.
                                    The exit status is 75 while a shard has no owner
cluster transfer <shard> <node>     hands a shard to another node; clients of its virtual hosts connect again
cluster transfer -p <vhost> <node>  the same for the shard of a virtual host
cluster rebalance                   hands each shard to its preferred node
cluster replace <address>           gives the seat of a node with a lost disk to the new node waiting at its address

A node is identified by its name or address. After an interruption, repeat replace: it continues where it was.
Each action has its own help, as in: cluster transfer --help. So have cluster import and cluster restore, which make the data folder
of a node while no broker runs.`,
		},
	}
}

func checkClusterAction(c *call) error {
	switch n := len(c.operands); c.operands[0] {
	case "status", "rebalance":
		if n > 1 {
			return misused("too many arguments.")
		}
	case "transfer":
		return checkTransfer(c)
	case "replace":
		if n == 1 {
			return misused("not enough arguments: the address is missing of the node that is replaced, such as c.example.com:5680.")
		}
		if n > 3 {
			return misused("too many arguments.")
		}
	default:
		return misused("cluster %s, and import and restore while no broker runs; not '%s'.", c.command.actionNames(), c.operands[0])
	}
	return nil
}

// checkTransfer checks that the operands name a node and either a shard or a virtual host.
func checkTransfer(c *call) error {
	want := 3
	if c.has("vhost") {
		want = 2
	}
	switch n := len(c.operands); {
	case n == 1 && want == 3:
		return misused("not enough arguments: a shard and the node that gets it are missing.")
	case n == 1:
		return misused("not enough arguments: the node that gets the shard is missing.")
	case n < want && isShard(c.operands[1]):
		return misused("not enough arguments: the node that gets shard %s is missing.", c.operands[1])
	case n < want:
		return misused("not enough arguments: a shard is missing, as a number before the node or by a virtual host, --vhost.")
	case n == want+1 && want == 2:
		return misused("too many arguments: the shard is that of virtual host '%s' already, so '%s' is one too many.", c.vhost(), c.operands[1])
	case n > want:
		return misused("too many arguments.")
	}
	if want == 2 {
		return nil
	}
	if !isShard(c.operands[1]) {
		return &misuse{dataError, fmt.Sprintf("Bad argument: '%s' is not a shard: expected a number from 0 to 255, followed by the node", c.operands[1])}
	}
	return nil
}

// isShard reports whether an operand can be the number of a shard.
func isShard(operand string) bool {
	_, err := strconv.ParseUint(operand, 10, 8)
	return err == nil
}

func runClusterAction(ctx context.Context, c *call) error {
	switch c.operands[0] {
	case "transfer":
		return c.transfer(ctx)
	case "rebalance":
		return c.rebalance(ctx)
	case "replace":
		return c.replaceNode(ctx)
	}
	return c.clusterStatus(ctx)
}

func (c *call) transfer(ctx context.Context) error {
	to := c.operands[len(c.operands)-1]
	body := map[string]any{"to": to}
	if c.has("vhost") {
		body["vhost"] = c.vhost()
		c.banner("Transferring the shard of vhost '%s' to node %s ...", c.vhost(), to)
	} else {
		body["shard"] = json.Number(c.operands[1])
		c.banner("Transferring shard %s to node %s ...", c.operands[1], to)
	}
	return c.doneUnless(c.handOver(ctx, body))
}

// handOver requests a transfer: {"shard" or "vhost", "to"}.
func (c *call) handOver(ctx context.Context, transfer map[string]any) error {
	return c.api.call(ctx, http.MethodPost, path("cluster", "transfer"), transfer, nil)
}

// rebalance transfers each shard that is not at its preferred node to that node, one after another.
func (c *call) rebalance(ctx context.Context) error {
	c.banner("Rebalancing the shards of the cluster ...")
	var all object
	if err := c.api.get(ctx, path("cluster"), &all); err != nil {
		return err
	}
	if string(all["clustered"]) != "true" {
		return failed(unavailable, "the broker is in no cluster")
	}
	var stay []error
	moved := int64(0)
	for _, s := range objects(all["shards"]) {
		if !displaced(s) {
			continue
		}
		body := map[string]any{"shard": s["shard"], "to": s.text("preferred")}
		if err := c.handOver(ctx, body); err != nil {
			stay = append(stay, fmt.Errorf("shard %d: %w", s.number("shard"), err))
			continue
		}
		moved++
	}
	if len(stay) > 0 {
		return failed(temporaryFailure, "%s transferred, and %s not: %v", counted(moved, "shard"), counted(int64(len(stay)), "shard"), errors.Join(stay...))
	}
	if err := unowned(objects(all["shards"])); err != nil {
		return err
	}
	return c.result("%s transferred", counted(moved, "shard"))
}

func (c *call) replaceNode(ctx context.Context) error {
	address := c.operands[1]
	body := map[string]any{"address": address}
	if len(c.operands) > 2 {
		body["number"] = c.operands[2]
	}
	c.banner("Replacing the node at %s ...", address)
	var said object
	err := c.meanwhile(ctx, func(ctx context.Context) { c.followReplacement(ctx, address) }, func() error {
		return c.api.call(ctx, http.MethodPost, path("cluster", "replace"), body, &said)
	})
	if err != nil {
		return err
	}
	return c.result("Node %s has the seat at %s, and all that is in its shards", said.text("number"), address)
}

// meanwhile runs show until do returns.
func (*call) meanwhile(ctx context.Context, show func(context.Context), do func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	var showing sync.WaitGroup
	showing.Go(func() { show(ctx) })
	defer showing.Wait()
	defer cancel()
	return do()
}

// followReplacement shows how much the node at an address still has to copy, until ctx ends.
func (c *call) followReplacement(ctx context.Context, address string) {
	show := newProgress(c)
	defer show.end()
	for pause(ctx, replacementPoll) == nil {
		var all object
		if c.api.get(ctx, path("cluster"), &all) != nil {
			continue // the request for the replacement reports the error
		}
		if text := replacementText(all, address); text != "" {
			show.say(text, replacementPoll)
		}
	}
}

// replacementText lists for each shard how much the node at an address still has to copy; "" = nothing.
func replacementText(all object, address string) string {
	name := ""
	for _, n := range objects(all["nodes"]) {
		if n.text("address") == address {
			name = n.text("name")
		}
	}
	var lacks []string
	for _, s := range objects(all["shards"]) {
		for _, p := range objects(s["replicas"]) {
			if p.text("node") == name && (string(p["voter"]) != "true" || string(p["caught_up"]) != "true") {
				lacks = append(lacks, fmt.Sprintf("shard %d: %s", s.number("shard"), replicaText(p)))
			}
		}
	}
	return strings.Join(lacks, "; ")
}

func (c *call) clusterStatus(ctx context.Context) error {
	var all object
	err := c.api.get(ctx, path("cluster"), &all)
	if isRefusal(err, http.StatusNotFound) {
		return failed(unavailable, "%s has no GET /api/cluster: it is no broker of this kind", c.api.base)
	}
	if err != nil {
		return err
	}
	c.banner("Cluster status of node %s ...", shown(all.text("node")))
	r := &report{facts: map[string]any{}}
	for name, v := range all {
		r.facts[name] = v
	}
	r.chapter("Basics")
	r.line("Cluster name: %s", shown(all.text("name")))
	if string(all["clustered"]) != "true" {
		r.line("This broker is in no cluster.")
		return c.printReport(r)
	}
	r.line("Registry: %s", ownerText(all["registrar"]))
	r.clusterNodes(all)
	for _, s := range objects(all["shards"]) {
		r.clusterShard(s)
	}
	r.applicants(objects(all["applicants"]))
	if err := c.printReport(r); err != nil {
		return err
	}
	return unowned(objects(all["shards"]))
}

// unowned returns an error if a shard has no owner, so that scripts see it in the exit status.
func unowned(shards []object) error {
	var numbers []string
	for _, s := range shards {
		if string(s["owner"]) == "null" {
			numbers = append(numbers, strconv.FormatInt(s.number("shard"), 10))
		}
	}
	switch len(numbers) {
	case 0:
		return nil
	case 1:
		return failed(temporaryFailure, "shard %s has no owner now", numbers[0])
	}
	return failed(temporaryFailure, "shards %s have no owner now", strings.Join(numbers, ", "))
}

// ownerText returns the name of an owner as text.
func ownerText(raw json.RawMessage) string {
	var name string
	if json.Unmarshal(raw, &name) != nil || name == "" {
		return "none"
	}
	return shown(name)
}

func (r *report) clusterNodes(all object) {
	r.chapter("Nodes")
	var lines []string
	for _, n := range objects(all["nodes"]) {
		line := shown(n.text("name"))
		switch {
		case string(n["running"]) != "true":
			line += ": does not answer"
		case n.text("name") == all.text("node"):
			line += ": running, asked"
		default:
			line += ": running"
		}
		if v := n.text("version"); v != "" {
			line += ", version " + shown(v)
		}
		line += ", number " + shown(n.text("number"))
		if relayed := n.number("relayed_connections"); relayed > 0 {
			line += fmt.Sprintf(", relays %d connections", relayed)
		}
		lines = append(lines, line)
		for _, l := range objects(n["links"]) {
			lines = append(lines, "   "+linkText(l))
		}
	}
	for _, line := range lines {
		r.line("%s", line)
	}
}

// linkText describes a link of a node.
func linkText(l object) string {
	line := "link to " + ownerText(l["to"])
	if string(l["connected"]) != "true" {
		line += ": down"
		if e := l.text("error"); e != "" {
			line += ": " + shown(e)
		}
		return line
	}
	var trip, offset float64
	if json.Unmarshal(l["round_trip_ms"], &trip) == nil && json.Unmarshal(l["clock_offset_ms"], &offset) == nil && string(l["round_trip_ms"]) != "null" {
		line += fmt.Sprintf(": %.1f ms there and back, clock %+.1f ms", trip, offset)
	}
	if waits := l.number("queued_bytes"); waits > 0 {
		line += fmt.Sprintf(", %d bytes wait", waits)
	}
	return line
}

func (r *report) clusterShard(s object) {
	title := fmt.Sprintf("Shard %d", s.number("shard"))
	if string(s["registry"]) == "true" {
		title += " (registry)"
	}
	r.chapter(title)
	line := fmt.Sprintf("Owner: %s, term %d", ownerText(s["owner"]), s.number("term"))
	if displaced(s) {
		line += ", meant for " + ownerText(s["preferred"])
	}
	r.line("%s", line)
	if vhosts := stringList(s["vhosts"]); len(vhosts) > 0 {
		names := make([]string, len(vhosts))
		for i, v := range vhosts {
			names[i] = shown(v)
		}
		slices.Sort(names)
		r.line("Virtual hosts: %s", strings.Join(names, ", "))
	}
	for _, p := range objects(s["replicas"]) {
		r.line("   %s", replicaText(p))
	}
}

// displaced reports whether the owner of a shard is another node than the preferred one.
func displaced(s object) bool {
	owner, preferred := s.text("owner"), s.text("preferred")
	return owner != "" && preferred != "" && owner != preferred
}

// replicaText describes a node's replica of a shard.
func replicaText(p object) string {
	line := ownerText(p["node"]) + ": " + shown(p.text("role"))
	switch {
	case string(p["voter"]) == "false" && p["lag"] != nil:
		line += fmt.Sprintf(", catches up: it lacks %d entries, and has no vote yet", p.number("lag"))
	case string(p["voter"]) == "false":
		line += ", catches up: its lag is not known, and it has no vote yet"
	case p.text("role") == "owner":
	case string(p["caught_up"]) == "true":
		line += ", has everything"
	case p["lag"] != nil:
		line += fmt.Sprintf(", lacks %d entries", p.number("lag"))
	case p["voter"] != nil: // it has not answered since the owner became the owner
		line += ", its lag is not known"
	}
	if string(p["active"]) == "false" && string(p["voter"]) != "false" {
		line += ", does not answer the owner"
	}
	if e := p.text("error"); e != "" {
		line += ": " + shown(e)
	}
	return line
}

func (r *report) applicants(all []object) {
	if len(all) == 0 {
		return
	}
	r.chapter("New nodes that wait for a seat")
	for _, a := range all {
		r.line("%s, number %s: curfew ctl cluster replace %s", shown(a.text("address")), shown(a.text("number")), shown(a.text("address")))
	}
}
