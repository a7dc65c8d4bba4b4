// Package probe answers the health checks of supervisors and load balancers: whether the process works, and whether clients may connect.
package probe

import (
	"net/http"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
)

// Draining is the alarm of a broker that closes its connections and accepts no new ones.
const Draining = "draining"

// Alarms of a node of a cluster.
const (
	// Alone is raised while the node knows no owner of the registry. Without a majority the node serves no clients.
	Alone = "majority"
	// Clock is raised while the node owns no shards because its clock differs too much from those of the other nodes.
	Clock = "clock"
)

// shardAlarm begins the name of each alarm about a failed log of the data directory.
const shardAlarm = "shard "

// Probe reports whether a check must fail because of an alarm.
type Probe func(alarm string) bool

var (
	// Health fails when the process must be restarted, which helps if a log has failed.
	Health Probe = func(alarm string) bool { return strings.HasPrefix(alarm, shardAlarm) }
	// Readiness fails when clients must not connect, or should rather connect to another node of the cluster. Lack of memory or disk space
	// does not count: publishers wait then, and only consumers, which have to connect, can end the shortage.
	Readiness Probe = func(alarm string) bool { return alarm == Draining || alarm == Alone || Health(alarm) }
)

// Failures returns the alarms that make the check fail.
func (p Probe) Failures(alarms []string) []string {
	return slices.DeleteFunc(slices.Clone(alarms), func(alarm string) bool { return !p(alarm) })
}

// Answer returns the status and body of the response. The body lists all alarms, whether or not the check fails because of them.
func (p Probe) Answer(all []string) (status int, body jsonobj.Object) {
	alarms := slices.DeleteFunc(append([]string{}, all...), func(alarm string) bool { return alarm == Draining })
	if failures := p.Failures(all); len(failures) > 0 {
		return http.StatusServiceUnavailable, jsonobj.Object{{"status", "failed"}, {"reasons", failures}, {"alarms", alarms}}
	}
	return http.StatusOK, jsonobj.Object{{"status", "ok"}, {"alarms", alarms}}
}
