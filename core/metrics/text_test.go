package metrics

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"io"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/telemetry"
)

func TestText(t *testing.T) {
	var b bytes.Buffer
	w := &text{Writer: bufio.NewWriter(&b)}
	w.family(&Family{Name: "a_total", Help: "Back\\slash\nline", Kind: Counter, Points: []Point{
		{Value: 1 << 40}, {Labels: label("queue", "a\"b\\c\nd"), Value: 0.25},
	}})
	w.family(&Family{Name: "empty", Help: "Nothing"})
	w.family(&Family{Name: "h", Help: "Histogram", Kind: Histogram, Points: []Point{{Labels: label("x", "y"), Distribution: telemetry.Distribution{
		Bounds: []float64{.5, 2}, Counts: []uint64{1, 0, 2}, Count: 3, Sum: 7.5,
	}}}})
	must(t, w.Flush())
	want := `# HELP a_total Back\\slash\nline
# TYPE a_total counter
a_total 1099511627776
a_total{queue="a\"b\\c\nd"} 0.25
# HELP h Histogram
# TYPE h histogram
h_bucket{x="y",le="0.5"} 1
h_bucket{x="y",le="2"} 1
h_bucket{x="y",le="+Inf"} 3
h_sum{x="y"} 7.5
h_count{x="y"} 3
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// get asks for objects and returns the status and the answer.
func get(t *testing.T, o *Objects, target string, header ...string) (status int, body string) {
	t.Helper()
	q := httptest.NewRequest("GET", target, nil)
	if len(header) > 0 {
		q.Header.Set(header[0], header[1])
	}
	w := httptest.NewRecorder()
	o.ServeHTTP(w, q)
	in := io.Reader(w.Body)
	if w.Header().Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(in)
		must(t, err)
		in = z
	}
	all, err := io.ReadAll(in)
	must(t, err)
	return w.Code, string(all)
}

func TestObjects(t *testing.T) {
	r := newRig(t, 1)
	v, other := r.vhost("v"), r.vhost("other")
	r.declare(v, "a")
	r.declare(v, "b")
	r.declare(other, "c")
	o := NewObjects(r.collector)
	for _, tc := range []struct {
		name, target string
		header       []string
		status       int
		want, not    []string
	}{
		{
			name: "everything", target: "/metrics/per-object", status: 200,
			want: []string{
				`rabbitmq_queue_messages{vhost="v",queue="a"} 0`, `rabbitmq_queue_messages{vhost="other",queue="c"} 0`, "rabbitmq_queues 3",
				`rabbitmq_identity_info{rabbitmq_node="curfew@test",rabbitmq_cluster="tests",rabbitmq_endpoint="per-object"} 1`,
			},
			not: []string{`queue=""`, `rabbitmq_endpoint="aggregated"`},
		},
		{
			name: "compressed", target: "/metrics/per-object", header: []string{"Accept-Encoding", "deflate, gzip"}, status: 200,
			want: []string{"rabbitmq_queues 3"},
		},
		{
			name: "a group in a vhost", target: "/metrics/detailed?family=queue_consumer_count&vhost=v", status: 200,
			want: []string{`rabbitmq_detailed_queue_consumers{vhost="v",queue="b"} 0`, "# TYPE rabbitmq_detailed_queue_consumers gauge"},
			not:  []string{"other", "rabbitmq_detailed_queue_messages", "rabbitmq_queues"},
		},
		{
			name: "nothing but whose it is", target: "/metrics/detailed?family=nonsense", status: 200,
			want: []string{`rabbitmq_identity_info{rabbitmq_node="curfew@test",rabbitmq_cluster="tests",rabbitmq_endpoint="detailed"} 1`},
			not:  []string{"rabbitmq_detailed", "rabbitmq_queues"},
		},
		{name: "elsewhere", target: "/metrics/else", status: 404},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, body := get(t, o, tc.target, tc.header...)
			if status != tc.status {
				t.Errorf("status %d, want %d", status, tc.status)
			}
			for _, text := range tc.want {
				if !strings.Contains(body, text+"\n") {
					t.Errorf("%q is not in\n%s", text, body)
				}
			}
			for _, text := range tc.not {
				if strings.Contains(body, text) {
					t.Errorf("%q is in\n%s", text, body)
				}
			}
		})
	}
	o.busy.Lock()
	if status, _ := get(t, o, "/metrics/per-object"); status != 503 {
		t.Errorf("a second request at a time: status %d, want 503", status)
	}
}

// Each family of queues is in a group, otherwise it could not be requested. The family of ended leases used to be in none.
func TestDetailedGroups(t *testing.T) {
	grouped := slices.Concat(slices.Collect(maps.Values(detailedGroups))...)
	var all []string
	for _, f := range queueFamilies {
		all = append(all, f.name)
	}
	reasons := newReasonFamilies()
	for _, f := range reasons.all() {
		all = append(all, f.Name)
	}
	for _, name := range all {
		if !slices.Contains(grouped, name) {
			t.Errorf("%s is in no group", name)
		}
	}
}
