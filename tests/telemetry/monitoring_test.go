package telemetry

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/tests/process"
	"github.com/curfewmq/curfew/tests/tools"
)

// monitoring is the folder of what Grafana and Prometheus load.
func monitoring(t *testing.T) string {
	t.Helper()
	return filepath.Join(process.Root(t), "cmd", "curfew", "telemetry", "dashboards")
}

// The rules are valid, and do what their tests say: each of them fires in one.
func TestAlertRules(t *testing.T) {
	promtool := tools.Path(t, "promtool")
	for _, args := range [][]string{
		{"check", "rules", "--lint=all", "--lint-fatal", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}, {"check", "config", "--lint=all", "--lint-fatal", "scrape.yml"},
	} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = monitoring(t)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	tests, err := os.ReadFile(filepath.Join(monitoring(t), "alerts_test.yml"))
	must(t, err)
	rules := alertRules(t)
	if len(rules) < 20 {
		t.Errorf("%d rules were read", len(rules))
	}
	for _, r := range rules {
		if !strings.Contains(string(tests), `alertname="`+r.name+`",alertstate="firing"`) {
			t.Errorf("%s fires in no test", r.name)
		}
	}
}

// rule is a rule of alerts.yml.
type rule struct{ name, expression, texts string }

var (
	ruleStart  = regexp.MustCompile(`(?m)^ +- alert: (\w+)$`)
	ruleFolded = regexp.MustCompile(`(?s)\n +expr: (?:>-\n)?(.*?)\n +(?:for|labels):`)
)

// alertRules reads the rules: their form is simple, and promtool has checked it.
func alertRules(t *testing.T) (all []rule) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(monitoring(t), "alerts.yml"))
	must(t, err)
	text := string(content)
	starts := ruleStart.FindAllStringSubmatchIndex(text, -1)
	for i, at := range starts {
		end := len(text)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		body := text[at[3]:end]
		expression := ruleFolded.FindStringSubmatch(body)
		if expression == nil {
			t.Fatalf("%s has no expression", text[at[2]:at[3]])
		}
		_, texts, _ := strings.Cut(body, "annotations:")
		all = append(all, rule{text[at[2]:at[3]], expression[1], texts})
	}
	return all
}

// dashboard is what the test reads of a dashboard.
type dashboard struct {
	UID         string
	Annotations struct {
		List []struct{ Expr, TitleFormat string }
	}
	Panels []struct {
		ID          int
		Type, Title string
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct{ Expr, LegendFormat, RefID string }
		Datasource  struct{ UID string }
	}
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(monitoring(t), "curfew.json"))
	must(t, err)
	must(t, json.Unmarshal(content, &d))
	return d
}

// rareMetrics have no series before something happens that does not in these tests, by their labels; and values of labels.
var rareMetrics = map[string]string{
	"curfew_plugin_panics_total":           "plugin,hook",
	"curfew_plugin_invalid_verdicts_total": "plugin,hook",
	"curfew_expiry_overstay_seconds":       "strategy", // no consumer keeps a message past its deadline
	// A node's of a cluster, which core/metrics tests.
	"curfew_shard_owner": "shard", "curfew_shard_owned": "shard", "curfew_shard_role": "shard,role", "curfew_shard_elections_total": "shard",
	"curfew_shard_commit_seconds_bucket": "shard,le", "curfew_replica_lag_entries": "shard,node", "curfew_node_connected": "node",
	"curfew_node_clock_offset_seconds": "node", "curfew_link_round_trip_seconds": "node", "curfew_link_sent_bytes_total": "node",
	"curfew_link_queued_bytes": "node", "curfew_relayed_connections": "", "curfew_relayed_bytes_total": "direction",
}

// TestMonitoringAsksForWhatThereIs looks for all metrics, labels and values of labels that the dashboard and the rules name at a broker
// that has done everything: a metric that is renamed would leave an empty panel, and a rule that never fires.
func TestMonitoringAsksForWhatThereIs(t *testing.T) {
	b := startBusy(t)
	_, page := fetch(t, b.Metrics, "/metrics")
	there := scrapedOf(series(t, page))
	d := readDashboard(t)
	for _, p := range d.Panels {
		for _, query := range p.Targets {
			for _, m := range there.missing(query.Expr, query.LegendFormat, rareMetrics) {
				t.Errorf("panel %q asks for %s", p.Title, m)
			}
		}
	}
	for _, a := range d.Annotations.List {
		for _, m := range there.missing(a.Expr, a.TitleFormat, rareMetrics) {
			t.Errorf("annotation %q asks for %s", a.TitleFormat, m)
		}
	}
	values := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)
	for _, v := range d.Templating.List {
		if v.Type == "datasource" {
			continue
		}
		m := values.FindStringSubmatch(v.Definition)
		if m == nil {
			t.Errorf("variable %s is %q", v.Name, v.Definition)
			continue
		}
		for _, missing := range there.missing(m[1], "{{"+m[2]+"}}", rareMetrics) {
			t.Errorf("variable %s asks for %s", v.Name, missing)
		}
	}
	for _, r := range alertRules(t) {
		expression := strings.Replace(r.expression, `alarm=~"shard .*"`, `alarm=~".*"`, 1) // no log fails here
		expression = strings.ReplaceAll(expression, `|cycle"`, `"`)                        // which tests/broker has
		texts := strings.ReplaceAll(r.texts, "{{ $value", "")
		for _, m := range there.missing(expression, texts, rareMetrics) {
			t.Errorf("rule %s asks for %s", r.name, m)
		}
	}
}

// Everything of Curfew's own that metrics.md describes is there, and nothing else is: the dashboard's makers read that.
func TestMetricsAreDescribed(t *testing.T) {
	b := startBusy(t)
	_, page := fetch(t, b.Metrics, "/metrics")
	content, err := os.ReadFile(filepath.Join(process.Root(t), "cmd", "curfew", "telemetry", "metrics.md"))
	must(t, err)
	described := describedMetrics(string(content))
	typed := regexp.MustCompile(`(?m)^# TYPE (curfew_\w+) `).FindAllStringSubmatch(page, -1)
	for _, m := range typed {
		if !described[m[1]] {
			t.Errorf("metrics.md does not describe %s", m[1])
		}
		delete(described, m[1])
	}
	for name := range described {
		if rareMetrics[name] == "" {
			t.Errorf("metrics.md describes %s, which is not there", name)
		}
	}
}

// describedMetrics are the families in the first column of the table of Curfew's own, with names such as a_{b,c}_total spelled out.
func describedMetrics(page string) map[string]bool {
	_, table, _ := strings.Cut(page, "## Curfew's")
	all := map[string]bool{}
	for line := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		last := ""
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			for _, name := range spelled(m[1]) {
				if strings.HasPrefix(name, "_") { // another end of the name before
					name = sharedBeginning(last) + name
				} else {
					last = name
				}
				all[name] = true
			}
		}
	}
	return all
}

// spelled spells a_{b,c}_d out.
func spelled(name string) []string {
	before, rest, found := strings.Cut(name, "{")
	if !found {
		return []string{name}
	}
	inside, after, _ := strings.Cut(rest, "}")
	var all []string
	for one := range strings.SplitSeq(inside, ",") {
		all = append(all, spelled(before+one+after)...)
	}
	return all
}

// sharedBeginning is what curfew_wasm_breaker_open has in common with the names that are written behind it.
func sharedBeginning(name string) string {
	words := strings.SplitN(name, "_", 3)
	return strings.Join(words[:2], "_")
}

// Grafana shows what overlaps on top of each other, and confuses what has the same number.
func TestDashboardIsInOrder(t *testing.T) {
	d := readDashboard(t)
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 {
			t.Errorf("panel %q has the number %d, as another one", p.Title, p.ID)
		}
		ids[p.ID] = true
		g := p.GridPos
		if g.W < 1 || g.H < 1 || g.X+g.W > 24 {
			t.Errorf("panel %q is at %+v", p.Title, g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" {
					t.Fatalf("panel %q lies on %q", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		if p.Type != "row" && (p.Datasource.UID != "${datasource}" || len(p.Targets) == 0) {
			t.Errorf("panel %q has %d queries, of %q", p.Title, len(p.Targets), p.Datasource.UID)
		}
	}
	if d.UID != "curfew" || len(ids) < 40 {
		t.Errorf("the dashboard %q has %d panels", d.UID, len(ids))
	}
}
