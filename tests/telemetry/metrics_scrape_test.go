package telemetry

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
	"github.com/curfewmq/curfew/tests/tools"
)

// metricsListener has metrics served on a listener of their own, too.
const metricsListener = "listen: {metrics: \"127.0.0.1:0\"}\n"

// fetch returns the status and the body of a page.
func fetch(t *testing.T, address, path string, header ...string) (status int, body string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, http.NoBody)
	must(t, err)
	for i := 0; i+1 < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	status, body, err = process.Do(q)
	must(t, err)
	return status, body
}

// series are the values on a page of metrics.
func series(t *testing.T, page string) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	for lines := bufio.NewScanner(strings.NewReader(page)); lines.Scan(); {
		line := lines.Text()
		i := strings.LastIndexByte(line, ' ')
		if i < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		v, err := strconv.ParseFloat(line[i+1:], 64)
		must(t, err)
		all[line[:i]] = v
	}
	return all
}

// work has something happen of everything that is counted.
func (b *broker) work() {
	b.t.Helper()
	b.declare("dead", nil)
	b.declare("expiring", letters("dead", amqp091.Table{"x-message-ttl": 1}))
	b.declare("waiting", amqp091.Table{"x-message-ttl": 1_800_000})
	b.declare(`a "b" \c{d}`, nil)
	for range 5 {
		b.publish("expiring", nil, "")
		b.publish("waiting", nil, "")
	}
	if !process.Poll(func() bool {
		q, err := b.ch.QueueDeclarePassive("dead", true, false, false, false, nil)
		must(b.t, err)
		return q.Messages == 5
	}) {
		b.t.Fatal("not all messages expired")
	}
}

func TestPromtoolAcceptsMetrics(t *testing.T) {
	promtool := tools.Path(t, "promtool")
	b := startBusy(t)
	for _, page := range []struct{ address, path string }{
		{b.Management, "/metrics"},
		{b.Management, "/metrics/per-object"},
		{b.Metrics, "/metrics"},
		{b.Metrics, "/metrics/detailed?family=queue_coarse_metrics&family=curfew_queue_metrics"},
	} {
		status, text := fetch(t, page.address, page.path)
		if status != http.StatusOK {
			t.Errorf("%s: status %d, %s", page.path, status, text)
		}
		check := exec.CommandContext(t.Context(), promtool, "check", "metrics")
		check.Stdin = strings.NewReader(text)
		if out, err := check.CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
			t.Errorf("%s: promtool: %v\n%s", page.path, err, out)
		}
	}
}

func TestMetricsTellWhatHappened(t *testing.T) {
	t.Parallel()
	b := start(t, metricsListener)
	b.work()
	_, page := fetch(t, b.Metrics, "/metrics")
	got := series(t, page)
	for name, want := range map[string]float64{
		`rabbitmq_global_messages_received_total{protocol="amqp091"}`:                         10,
		`rabbitmq_queue_messages{queue="waiting",vhost="/"}`:                                  5,
		`rabbitmq_queue_messages{queue="dead",vhost="/"}`:                                     5,
		`curfew_messages_expired_total{strategy="deadline",vhost="/"}`:                        5,
		`curfew_messages_dead_lettered_total{reason="expired",strategy="deadline",vhost="/"}`: 5,
		`curfew_queue_messages_expired_total{queue="expiring",strategy="deadline",vhost="/"}`: 5,
		`curfew_expiry_lateness_seconds_count{strategy="deadline"}`:                           5,
		`curfew_messages_due{due_in="10m-1h"}`:                                                5,
		`rabbitmq_queues`:                                                                     4,
		`rabbitmq_connections`:                                                                1,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v (there: %v), want %v", name, v, ok, want)
		}
	}
	if got[`curfew_log_append_seconds_count{log="messages"}`] == 0 || got["curfew_next_deadline_timestamp_seconds"] == 0 {
		t.Error("nothing was written, or nothing has a deadline")
	}
}

// A dead letter that waits for its arrival elsewhere is in its queue, and in no consumer's reach: it was counted as ready.
func TestDeadLettersInWaitingAreNotReady(t *testing.T) {
	t.Parallel()
	b := start(t, metricsListener)
	b.declare("q", letters("nowhere", amqp091.Table{
		"x-queue-type": "quorum", "x-message-ttl": 0, "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
	}))
	b.publish("q", nil, "")
	var got map[string]float64
	if !process.Poll(func() bool {
		_, page := fetch(t, b.Metrics, "/metrics")
		got = series(t, page)
		return got[`rabbitmq_queue_messages{queue="q",vhost="/"}`] == 1 && got[`rabbitmq_queue_messages_ready{queue="q",vhost="/"}`] == 0
	}) {
		t.Errorf("got %v", got)
	}
}

func TestWhoMaySeeMetrics(t *testing.T) {
	t.Parallel()
	b := start(t, metricsListener)
	const anybody = "X-Forwarded-For"
	b.ask(201, "PUT", "users/observer", map[string]any{"password": "observer", "tags": "monitoring"})
	for _, tc := range []struct {
		name, address, path string
		header              []string
		want                int
	}{
		{"this machine", b.Management, "/metrics", nil, 200},
		{"somebody through a proxy", b.Management, "/metrics", []string{anybody, "192.0.2.1"}, 401},
		{"somebody who logs in", b.Management, "/metrics", []string{anybody, "192.0.2.1", "Authorization", "Basic b2JzZXJ2ZXI6b2JzZXJ2ZXI="}, 200},
		{"guest through a proxy", b.Management, "/metrics", []string{anybody, "192.0.2.1", "Authorization", "Basic Z3Vlc3Q6Z3Vlc3Q="}, 401},
		{"everybody where nobody else comes", b.Metrics, "/metrics", []string{anybody, "192.0.2.1"}, 200},
		{"the API is not there", b.Metrics, "/api/overview", []string{"Authorization", "Basic Z3Vlc3Q6Z3Vlc3Q="}, 404},
	} {
		if status, _ := fetch(t, tc.address, tc.path, tc.header...); status != tc.want {
			t.Errorf("%s: status %d, want %d", tc.name, status, tc.want)
		}
	}
	if _, overview := fetch(t, b.Management, "/api/overview", "Authorization", "Basic Z3Vlc3Q6Z3Vlc3Q="); !strings.Contains(overview, `"http/prometheus"`) {
		t.Error("the overview does not list the listener")
	}
}

// prometheus is a Prometheus that scrapes a broker.
type prometheus struct {
	t       *testing.T
	address string
}

// guard runs a program, and kills it and all that it has started when nobody is left who wants it, even if the tests were killed.
const guard = `"$0" "$@" </dev/null & cat; kill -KILL 0`

// startPrometheus starts one with the configuration that our documentation shows, but for address and interval.
func startPrometheus(t *testing.T, target string) *prometheus {
	t.Helper()
	program := tools.Path(t, "prometheus")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &prometheus{t, ln.Addr().String()}
	must(t, ln.Close())
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	documentation, err := os.ReadFile("../../cmd/curfew/telemetry/metrics.md")
	must(t, err)
	_, yaml, _ := strings.Cut(string(documentation), "```yaml\n")
	yaml, _, _ = strings.Cut(yaml, "```")
	yaml = strings.Replace(yaml, "localhost:15672", target, 1)
	must(t, os.WriteFile(config, []byte("global: {scrape_interval: 200ms}\n"+yaml), 0o600))
	cmd := exec.CommandContext(t.Context(), "sh", "-c", guard, program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+p.address)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	wanted, err := cmd.StdinPipe()
	must(t, err)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = wanted.Close()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(out.String())
		}
	})
	return p
}

// query returns the values that an expression has, nil if Prometheus does not answer.
func (p *prometheus) query(expression string) (values []float64) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: process.Patience}
	r, err := client.Get("http://" + p.address + "/api/v1/query?query=" + url.QueryEscape(expression))
	if err != nil {
		return nil
	}
	defer r.Body.Close()
	var answer struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}
	if json.NewDecoder(r.Body).Decode(&answer) != nil {
		return nil
	}
	for _, one := range answer.Data.Result {
		text, _ := one.Value[1].(string)
		v, err := strconv.ParseFloat(text, 64)
		must(p.t, err)
		values = append(values, v)
	}
	return values
}

// await waits until an expression has one value.
func (p *prometheus) await(expression string, want float64) {
	p.t.Helper()
	var got []float64
	if !process.Poll(func() bool {
		got = p.query(expression)
		return slices.Equal(got, []float64{want})
	}) {
		p.t.Errorf("%s is %v, want %v", expression, got, want)
	}
}

// TestPrometheusScrapes asks in the way of RabbitMQ's dashboards.
func TestPrometheusScrapes(t *testing.T) {
	t.Parallel()
	b := start(t, "")
	p := startPrometheus(t, b.Management)
	b.work()
	const cluster = ` * on(instance, job) group_left(rabbitmq_cluster, rabbitmq_node)` +
		` rabbitmq_identity_info{rabbitmq_cluster=~"curfew@.+", namespace="", rabbitmq_endpoint="aggregated"}`
	for expression, want := range map[string]float64{
		`up{job="curfew"}`: 1,
		"sum(rabbitmq_queue_messages_ready" + cluster + ")":                                  10,
		"sum(rabbitmq_global_messages_received_total" + cluster + ")":                        10,
		"sum(rabbitmq_channels" + cluster + ")":                                              1,
		"sum(rabbitmq_build_info" + cluster + ")":                                            1,
		`sum(rabbitmq_queue_messages{queue="waiting"}) by (rabbitmq_cluster)`:                5,
		`sum(curfew_messages_expired_total)`:                                                 5,
		`histogram_quantile(1, sum(curfew_expiry_lateness_seconds_bucket) by (le)) > bool 0`: 1,
		`rabbitmq_process_resident_memory_bytes < bool rabbitmq_resident_memory_limit_bytes`: 1,
	} {
		p.await(expression, want)
	}
}
