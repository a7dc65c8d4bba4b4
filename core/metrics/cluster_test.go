package metrics

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/replicas"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/wlog"
)

// clusterView is the view of the first of three nodes. The third one is being replaced by node 4, which has no name yet.
func clusterView() replicas.View {
	return replicas.View{
		Self: 1,
		Nodes: []replicas.Node{
			{ID: 1, Name: "curfew@a", Up: true},
			{ID: 2, Name: "curfew@b", Up: true, Link: replicas.Link{
				Sent: 10, Received: 20, Queued: 30, Dropped: 4, RoundTrip: time.Millisecond, Offset: -2 * time.Second, Measured: true,
			}},
			{ID: 3, Name: "curfew@c", Link: replicas.Link{Err: "refused"}},
		},
		Shards: []replicas.Shard{
			{
				Shard: 0, Role: replicas.Owner, Owner: 1, Term: 7, Commit: 100, Applied: 98, Last: 101, Bytes: 4096, Elections: 3,
				Peers:   []replicas.Replica{{Node: 2, Voter: true, Active: true, Match: 100, Lag: 1}, {Node: 3, Voter: true, Lag: 101, Silent: true}, {Node: 4, Lag: 101}},
				Commits: telemetry.Distribution{Bounds: []float64{1}, Counts: []uint64{5, 0}, Count: 5, Sum: .5},
			},
			{Shard: 1, Role: replicas.Stopped, Err: "the disk"},
			{Shard: 2, Role: replicas.Follower, Owner: 2, Term: 3, Commit: 5, Applied: 9},
		},
		Relayed: replicas.Relayed{Open: 2, Total: 9, BytesIn: 100, BytesOut: 200},
	}
}

func TestCluster(t *testing.T) {
	r := newRig(t, 10)
	r.collector.Replicas = clusterView
	c := r.collect()
	for series, v := range map[string]float64{
		`curfew_shard_owner{shard="0"}`:                         1,
		`curfew_shard_owner{shard="2"}`:                         0,
		`curfew_shard_owned{shard="1"}`:                         0,
		`curfew_shard_owned{shard="2"}`:                         1,
		`curfew_shard_role{shard="1",role="stopped"}`:           1,
		`curfew_shard_role{shard="1",role="follower"}`:          0,
		`curfew_shard_term{shard="0"}`:                          7,
		`curfew_shard_elections_total{shard="0"}`:               3,
		`curfew_shard_commit_index{shard="0"}`:                  100,
		`curfew_shard_unapplied_entries{shard="0"}`:             2,
		`curfew_shard_unapplied_entries{shard="2"}`:             0,
		`curfew_shard_bytes{shard="0"}`:                         4096,
		`curfew_replica_lag_entries{shard="0",node="curfew@b"}`: 1,
		`curfew_replica_lag_entries{shard="0",node="4"}`:        101,
		`curfew_replica_active{shard="0",node="curfew@b"}`:      1,
		`curfew_replica_voter{shard="0",node="4"}`:              0,
		`curfew_node_connected{node="curfew@b"}`:                1,
		`curfew_node_connected{node="curfew@c"}`:                0,
		`curfew_link_round_trip_seconds{node="curfew@b"}`:       .001,
		`curfew_node_clock_offset_seconds{node="curfew@b"}`:     -2,
		`curfew_link_sent_bytes_total{node="curfew@b"}`:         10,
		`curfew_link_received_bytes_total{node="curfew@b"}`:     20,
		`curfew_link_queued_bytes{node="curfew@b"}`:             30,
		`curfew_link_dropped_messages_total{node="curfew@b"}`:   4,
		`curfew_relayed_connections`:                            2,
		`curfew_relayed_connections_opened_total`:               9,
		`curfew_relayed_bytes_total{direction="in"}`:            100,
		`curfew_relayed_bytes_total{direction="out"}`:           200,
	} {
		want(t, c, series, v)
	}
	for _, series := range []string{`curfew_link_round_trip_seconds{node="curfew@c"}`, `curfew_node_connected{node="curfew@a"}`, `curfew_replica_lag_entries{shard="0",node="curfew@c"}`} {
		if _, there := value(c, series); there {
			t.Errorf("there is %s", series)
		}
	}
}

// A single broker has no cluster families, and the page of metrics describes those of a cluster.
func TestClusterFamiliesAreDescribed(t *testing.T) {
	r := newRig(t, 10)
	single := map[string]bool{}
	for _, f := range r.collect().Families {
		single[f.Name] = true
	}
	page, err := os.ReadFile(filepath.FromSlash("../../cmd/curfew/telemetry/metrics.md"))
	must(t, err)
	_, section, found := strings.Cut(string(page), "## A cluster's")
	section, _, ended := strings.Cut(section, "\n## ")
	if !found || !ended {
		t.Fatal("metrics.md has no section about a cluster")
	}
	section = strings.NewReplacer("`curfew_link_{sent,received}_bytes_total`", "`curfew_link_sent_bytes_total`, `curfew_link_received_bytes_total`").Replace(section)
	described := map[string]bool{}
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for _, m := range regexp.MustCompile("`(curfew_\\w+)`").FindAllStringSubmatch(cells[1], -1) {
				described[m[1]] = true
			}
		}
	}
	r.collector.Replicas = clusterView
	for _, f := range r.collect().Families {
		if !single[f.Name] && !described[f.Name] {
			t.Errorf("metrics.md does not describe %s", f.Name)
		}
		delete(described, f.Name)
	}
	for name := range described {
		t.Errorf("metrics.md describes %s as a cluster's, which there is not", name)
	}
}

// A node without a name is shown by its number, not omitted.
func TestNodeText(t *testing.T) {
	if got := nodeText(nil, wlog.NodeID(18446744073709551615)); got != "18446744073709551615" {
		t.Error(got)
	}
}
