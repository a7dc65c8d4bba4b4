package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

var featureColumns = known{columns("name state stability provided_by desc doc_url"), "name state"}

var deprecatedColumns = known{columns("name deprecation_phase provided_by desc doc_url"), "name deprecation_phase"}

// startup is the default time limit of the commands that wait for a broker; rabbitmqctl's is the same.
const startup = 5 * time.Minute

func brokerCommands() []command {
	return []command{
		{name: "ping", run: ping, patience: time.Minute, about: "checks that the broker answers and accepts the user"},
		{
			name: "status", run: printStatus, check: checkUnit, about: "prints the state of the broker",
			options: []option{{long: "unit", value: "bytes|mb|gb", about: "unit of memory and disk space (default gb)"}},
		},
		{name: "cluster_status", run: printCluster, about: "prints the nodes of the cluster, as rabbitmqctl does; cluster status prints more"},
		{name: "await_startup", run: awaitStartup, waits: true, patience: startup, about: "waits until the broker runs, in a cluster with a majority of the nodes"},
		{
			name: "wait", operands: "[<pidfile>]", run: awaitStartup, waits: true, patience: startup,
			options: []option{{long: "pid", short: "P", value: "pid", about: "ignored, like the file: the broker is identified by its address"}},
			about:   "waits until the broker answers",
		},
		{
			name: "await_online_nodes", operands: "<count>", run: awaitNodes, check: checkCount, waits: true, patience: startup,
			about: "waits until this number of nodes of the cluster run",
		},
		{name: "node_health_check", run: checkHealth, patience: 70 * time.Second, about: "checks that the broker answers and has no alarm"},
		{name: "check_running", run: checkRunning, about: "checks that the broker runs, in a cluster with a majority of the nodes, as rabbitmq-diagnostics does"},
		{name: "check_local_alarms", run: checkAlarms, about: "checks that the broker has no alarm, as rabbitmq-diagnostics does"},
		{name: "list_node_auth_attempt_stats", run: listAttempts, about: "prints counts of successful and failed logins, by protocol"},
		{
			name: "set_log_level", operands: "<log_level>", run: setLogLevel, about: "sets the lowest level that is logged, until the configuration is read again",
			more: "Levels are debug, info, warning, error, critical and none. The key log.level sets it permanently; SIGHUP makes the broker read that again.",
		},
		{name: "set_cluster_name", operands: "<name>", run: setClusterName, about: "sets the broker's name"},
		{
			name: "list_feature_flags", lists: &featureColumns, about: "lists feature flags",
			run: columnList("Listing feature flags ...", "feature-flags"),
		},
		{
			name: "list_deprecated_features", lists: &deprecatedColumns, about: "lists deprecated features, of which there are none",
			run: columnList("Listing deprecated features ...", "deprecated-features"),
		},
		{name: "enable_feature_flag", operands: "<flag>|all", run: enableFeature, about: "enables a feature flag, or all"},
	}
}

func ping(ctx context.Context, c *call) error {
	c.banner("Will ping %s. Timeout: %d ms.", c.api.base, c.timeout().Milliseconds())
	return c.resultUnless(c.whoami(ctx), "Ping succeeded")
}

func (c *call) whoami(ctx context.Context) error { return c.api.get(ctx, path("whoami"), nil) }

// running fails unless the broker answers and, in a cluster, its node has a majority: without one, clients reach no queues.
func (c *call) running(ctx context.Context) error {
	if err := c.whoami(ctx); err != nil {
		return err
	}
	for _, check := range []string{path("health", "checks", "metadata-store", "initialized"), path("health", "checks", "virtual-hosts")} {
		err := c.api.get(ctx, check, nil)
		if r, ok := errors.AsType[*refusal](err); ok && r.status == http.StatusServiceUnavailable {
			return failed(unavailable, "%s", r.reason)
		}
		if err != nil && !isRefusal(err, http.StatusNotFound) { // earlier releases do not have all checks
			return err
		}
	}
	return nil
}

func checkRunning(ctx context.Context, c *call) error {
	c.banner("Checking if RabbitMQ is running on node %s ...", c.api.base)
	return c.resultUnless(c.running(ctx), "RabbitMQ on node %s is fully booted and running", c.api.base)
}

func checkAlarms(ctx context.Context, c *call) error {
	c.banner("Asking node %s to report any local resource alarms ...", c.api.base)
	return c.resultUnless(c.alarmed(ctx), "Node %s reported no local alarms", c.api.base)
}

// alarmed fails if an alarm is raised.
func (c *call) alarmed(ctx context.Context) error {
	err := c.api.get(ctx, path("health", "checks", "local-alarms"), nil)
	if r, ok := errors.AsType[*refusal](err); ok && r.status == http.StatusServiceUnavailable {
		return failed(unavailable, "%s", r.reason)
	}
	return err
}

func checkHealth(ctx context.Context, c *call) error {
	c.banner("Timeout: %d seconds ...", int(c.timeout().Seconds()))
	c.banner("Checking health of node %s ...", c.api.base)
	return c.resultUnless(c.alarmed(ctx), "Health check passed")
}

// pollEvery is the time between two attempts to call a broker that does not answer.
const pollEvery = 500 * time.Millisecond

func awaitStartup(ctx context.Context, c *call) error { return c.await(ctx, c.running) }

// await calls ask until it succeeds or returns an error that another attempt cannot change.
func (c *call) await(ctx context.Context, ask func(context.Context) error) error {
	if t := c.timeout(); t > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t)
		defer cancel()
	}
	for {
		err := ask(ctx)
		if err == nil {
			return c.done()
		}
		if f, final := errors.AsType[*failure](err); isRefusal(err, http.StatusUnauthorized) || final && strings.HasPrefix(f.text, "Error:\n"+tooSmall) {
			return err // it runs, and another attempt gets the same error
		}
		if pause(ctx, pollEvery) != nil {
			return &failure{temporaryFailure, "Error:\n" + c.api.base + " did not answer in time. The last error was: " + err.Error()}
		}
	}
}

func checkCount(c *call) error {
	if _, err := strconv.ParseUint(c.operands[0], 10, 31); err != nil {
		return &misuse{dataError, "Bad argument: count should be a positive number"}
	}
	return nil
}

func awaitNodes(ctx context.Context, c *call) error {
	count := c.operands[0]
	c.banner("Will wait for at least %s nodes to join the cluster of %s. Timeout: %d seconds.", count, c.api.base, int(c.timeout().Seconds()))
	wanted, err := strconv.Atoi(count)
	if err != nil || wanted <= 1 {
		return c.await(ctx, c.whoami)
	}
	c.api.warn = nil // no warnings about nodes that do not answer: the command waits for them
	return c.await(ctx, func(ctx context.Context) error { return c.nodesRun(ctx, wanted) })
}

// tooSmall begins the error for a cluster that has too few nodes.
const tooSmall = "the cluster has no more nodes than"

// nodesRun fails while fewer nodes run than wanted. The error is final if the cluster does not have that many.
func (c *call) nodesRun(ctx context.Context, wanted int) error {
	var all []object
	if err := c.api.get(ctx, path("nodes")+"?columns=name,running", &all); err != nil {
		return err
	}
	running := 0
	for _, n := range all {
		if string(n["running"]) == "true" {
			running++
		}
	}
	switch {
	case running >= wanted:
		return nil
	case len(all) < wanted:
		return failed(unavailable, "%s %d, and no other will join", tooSmall, len(all))
	}
	return fmt.Errorf("%d of %d nodes run", running, len(all))
}

func listAttempts(ctx context.Context, c *call) error {
	overview, err := c.overview(ctx)
	if err != nil {
		return err
	}
	node := overview.text("node")
	c.banner("Listing authentication\n attempts for node \"%s\" ...", node)
	var all []object
	if err := c.api.get(ctx, path("auth", "attempts", node), &all); err != nil {
		return err
	}
	return c.showAll(all, columns("protocol auth_attempts auth_attempts_failed auth_attempts_succeeded")...)
}

func (c *call) overview(ctx context.Context) (o object, err error) {
	err = c.api.get(ctx, path("overview"), &o)
	return o, err
}

// otherLevels maps levels that rabbitmqctl accepts without documenting them to the levels that they mean.
var otherLevels = map[string]string{"notice": "info", "alert": "critical", "emergency": "critical"}

func setLogLevel(ctx context.Context, c *call) error {
	overview, err := c.overview(ctx)
	if err != nil {
		return err
	}
	level := c.operands[0]
	err = c.api.put(ctx, path("nodes", overview.text("node"), "log-level"), map[string]string{"level": cmp.Or(otherLevels[level], level)})
	if isRefusal(err, http.StatusNotFound) {
		return failed(unavailable, "the level of this broker's log cannot be set: change log.level in its configuration, and send the process SIGHUP")
	}
	if err == nil {
		c.banner("Setting log level to \"%s\" ...", level)
	}
	return c.doneUnless(err)
}

func setClusterName(ctx context.Context, c *call) error {
	c.banner("Setting cluster name to %s ...", c.operands[0])
	return c.put(ctx, "cluster-name", map[string]string{"name": c.operands[0]})
}

func enableFeature(ctx context.Context, c *call) error {
	if c.operands[0] != "all" {
		c.banner("Enabling feature flag \"%s\" ...", c.operands[0])
		return c.enable(ctx, c.operands[0])
	}
	c.banner("Enabling all feature flags ...")
	var all []object
	if err := c.api.get(ctx, path("feature-flags"), &all); err != nil {
		return err
	}
	for _, f := range all {
		if f.text("state") != "disabled" {
			continue
		}
		if err := c.enable(ctx, f.text("name")); err != nil {
			return err
		}
	}
	return c.done()
}

func (c *call) enable(ctx context.Context, flag string) error {
	return c.api.put(ctx, path("feature-flags", flag, "enable"), map[string]string{"name": flag})
}

// stringList reads a list of strings; it returns nil if raw is something else.
func stringList(raw json.RawMessage) []string {
	var all []string
	if json.Unmarshal(raw, &all) != nil {
		return nil
	}
	return all
}
