package metrics

import (
	"runtime"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// The version announced to clients differs from the version that runs.
func TestBuild(t *testing.T) {
	c := newRig(t, 10).collect()
	want(t, c, `curfew_build_info{version="1.2.3",commit="c0ffee",goversion="`+runtime.Version()+`"}`, 1)
	want(t, c, `rabbitmq_build_info{rabbitmq_version="3.13.7",prometheus_plugin_version="3.13.7",product_name="Curfew",product_version="1.2.3"}`, 1)
}

// The series of usual alarms do not come and go, so that rules can distinguish an alarm that has ended from a broker that is gone.
func TestAlarms(t *testing.T) {
	r := newRig(t, 10)
	for _, tc := range []struct {
		raised       []string
		disk, memory float64
		shard        bool
	}{
		{nil, 0, 0, false},
		{[]string{"memory"}, 0, 1, false},
		{[]string{"disk", "shard 3"}, 1, 0, true},
	} {
		r.alarms = tc.raised
		c := r.collect()
		want(t, c, `curfew_alarms{alarm="disk"}`, tc.disk)
		want(t, c, `curfew_alarms{alarm="memory"}`, tc.memory)
		if v, there := value(c, `curfew_alarms{alarm="shard 3"}`); there != tc.shard || there && v != 1 {
			t.Errorf("%v: the log that failed has the alarm %v (there: %t)", tc.raised, v, there)
		}
	}
}

func TestCertificates(t *testing.T) {
	r := newRig(t, 10)
	if _, there := value(r.collect(), "curfew_certificate_expires_timestamp_seconds"); there {
		t.Error("there is a certificate, but nothing listens with TLS")
	}
	r.certificates = []Certificate{{"amqp/ssl", time.Unix(1234, 5)}, {"https", time.Unix(5678, 0)}}
	c := r.collect()
	want(t, c, `curfew_certificate_expires_timestamp_seconds{protocol="amqp/ssl"}`, 1234)
	want(t, c, `curfew_certificate_expires_timestamp_seconds{protocol="https"}`, 5678)
}

// Labels such as within="10s" suggested cumulative counts: adding them up counted messages that are due sooner several times.
func TestRangesAreDisjoint(t *testing.T) {
	const now = hook.Instant(time.Hour)
	var h queue.DueHistogram
	for i, at := range []time.Duration{-time.Minute, 0, time.Second, 2 * time.Second, 11 * time.Second, 2 * time.Minute, 59 * time.Minute, 24 * time.Hour} {
		h.Add(now, now.Add(at), i+1)
	}
	var b builder
	b.due("due", "x", &h)
	c, sum := &Collection{Families: b.families}, 0.0
	for in, n := range map[string]float64{"overdue": 3, "0s-1s": 3, "1s-10s": 4, "10s-1m": 5, "1m-10m": 6, "10m-1h": 7, "1h-inf": 8} {
		want(t, c, `due{due_in="`+in+`"}`, n)
		sum += n
	}
	if sum != 36 || len(b.families[0].Points) != 7 {
		t.Errorf("%d ranges have %v, want 7 with 36", len(b.families[0].Points), sum)
	}
}
