// Package probe answers those who start, stop and route to brokers: whether the process works, and whether clients may connect.
package probe

import (
	"net/http"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
)

// Draining is the alarm of a broker that closes its connections and accepts no others.
const Draining = "draining"

// Alarms of a node of a cluster.
const (
	// Alone is raised while the node knows of no owner of the registry: without a majority it serves nobody.
	Alone = "majority"
	// Clock is raised while the node owns nothing, because its clock differs too much from those of the others.
	Clock = "clock"
)

// shardAlarm begins the names of alarms which say that a log of the data directory failed.
const shardAlarm = "shard "

// Probe reports whether an alarm makes the broker fail.
type Probe func(alarm string) bool

var (
	// Health fails when the process must be started again, which helps if a log has failed.
	Health Probe = func(alarm string) bool { return strings.HasPrefix(alarm, shardAlarm) }
	// Readiness fails when clients must not connect, or had better connect to another node of the cluster. Lack of memory or disk
	// space does not count: publishers wait, and only consumers, who have to connect, can end it.
	Readiness Probe = func(alarm string) bool { return alarm == Draining || alarm == Alone || Health(alarm) }
)

// Failures returns the alarms that make the broker fail.
func (p Probe) Failures(alarms []string) []string {
	return slices.DeleteFunc(slices.Clone(alarms), func(alarm string) bool { return !p(alarm) })
}

// Answer returns the status and the body to answer with. The body lists all alarms, whether or not they make the broker fail.
func (p Probe) Answer(all []string) (status int, body jsonobj.Object) {
	alarms := slices.DeleteFunc(append([]string{}, all...), func(alarm string) bool { return alarm == Draining })
	if failures := p.Failures(all); len(failures) > 0 {
		return http.StatusServiceUnavailable, jsonobj.Object{{"status", "failed"}, {"reasons", failures}, {"alarms", alarms}}
	}
	return http.StatusOK, jsonobj.Object{{"status", "ok"}, {"alarms", alarms}}
}
