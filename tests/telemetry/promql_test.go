package telemetry

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// selector is a metric that a PromQL expression asks for, by its labels.
type selector struct {
	metric   string
	matchers []matcher
}

type matcher struct{ label, op, value string }

// asked is what an expression asks for: its selectors, and the labels by which it groups or joins them.
type asked struct {
	selectors []selector
	labels    []string
}

// promToken matches a token of PromQL. What is between brackets are durations.
var promToken = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\[[^\]]*\]|[a-zA-Z_:][\w:]*|[0-9.]+\w*|=~|!~|!=|[<>=]=?|\S`)

// These words are no metrics where no parenthesis follows them.
var promWords = []string{"and", "or", "unless", "bool", "offset", "inf", "nan"}

// Before a list of labels.
var promLists = []string{"by", "without", "on", "ignoring", "group_left", "group_right"}

// parsePromQL finds what an expression asks for. It does not check the syntax, which promtool does.
func parsePromQL(expression string) (a asked) {
	tokens := promToken.FindAllString(expression, -1)
	for i := 0; i < len(tokens); i++ {
		word, next := tokens[i], ""
		if i+1 < len(tokens) {
			next = tokens[i+1]
		}
		switch {
		case slices.Contains(promLists, word):
			if next != "(" {
				continue
			}
			n := slices.Index(tokens[i:], ")")
			a.labels = append(a.labels, words(tokens[i+2:i+n])...)
			i += n
		case !isWord(word), next == "(", next == "by", next == "without", slices.Contains(promWords, word):
		case next == "{":
			n := slices.Index(tokens[i:], "}")
			a.selectors = append(a.selectors, selector{word, matchersOf(tokens[i+2 : i+n])})
			i += n
		default:
			a.selectors = append(a.selectors, selector{metric: word})
		}
	}
	return a
}

func isWord(token string) bool { return regexp.MustCompile(`^[a-zA-Z_]`).MatchString(token) }

func words(tokens []string) (all []string) {
	for _, t := range tokens {
		if isWord(t) {
			all = append(all, t)
		}
	}
	return all
}

func matchersOf(tokens []string) (all []matcher) {
	for i := 0; i+2 < len(tokens); i += 4 { // label, operator, value, comma
		all = append(all, matcher{tokens[i], tokens[i+1], strings.Trim(tokens[i+2], `"`)})
	}
	return all
}

// scraped is what a broker has, as Prometheus knows it: the values of each label of each metric.
type scraped map[string]map[string]map[string]bool

var seriesLabel = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)

func scrapedOf(pages ...map[string]float64) scraped {
	all := scraped{}
	for _, page := range pages {
		for text := range page {
			name, rest, _ := strings.Cut(text, "{")
			if all[name] == nil {
				all[name] = map[string]map[string]bool{}
			}
			for _, m := range seriesLabel.FindAllStringSubmatch(rest, -1) {
				if all[name][m[1]] == nil {
					all[name][m[1]] = map[string]bool{}
				}
				all[name][m[1]][m[2]] = true
			}
		}
	}
	return all
}

// added are labels that Prometheus adds to what it scrapes.
var added = []string{"job", "instance"}

// missing lists what an expression asks for that is not there, with the legend's labels. rare is what need not be there: metrics with
// their labels, and values of labels.
func (s scraped) missing(expression, legend string, rare map[string]string) (all []string) {
	a := parsePromQL(expression)
	known := map[string]bool{"job": true, "instance": true}
	for _, sel := range a.selectors {
		if sel.metric == "up" { // Prometheus' own
			continue
		}
		labels := s[sel.metric]
		if own, ok := rare[sel.metric]; ok {
			labels = map[string]map[string]bool{}
			for name := range strings.SplitSeq(own, ",") {
				labels[name] = nil
			}
		}
		if labels == nil {
			all = append(all, sel.metric)
			continue
		}
		for name := range labels {
			known[name] = true
		}
		for _, m := range sel.matchers {
			values, there := labels[m.label]
			switch {
			case slices.Contains(added, m.label):
			case !there:
				all = append(all, sel.metric+" with the label "+m.label)
			case m.op == "=" && values != nil && !values[m.value], m.op == "=~" && !strings.Contains(m.value, "$") && values != nil && !matches(m.value, values):
				all = append(all, sel.metric+` with `+m.label+m.op+m.value)
			}
		}
	}
	for _, name := range append(a.labels, placeholders(legend)...) {
		if !known[name] {
			all = append(all, "the label "+name)
		}
	}
	return all
}

// matches reports whether each alternative of a pattern has a value that it matches.
func matches(pattern string, values map[string]bool) bool {
	for one := range strings.SplitSeq(pattern, "|") {
		whole := regexp.MustCompile("^(?:" + one + ")$")
		if !slices.ContainsFunc(slices.Collect(maps.Keys(values)), whole.MatchString) {
			return false
		}
	}
	return true
}

var placeholder = regexp.MustCompile(`\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}`)

// placeholders are the labels that a text of Grafana or of a rule names.
func placeholders(text string) (all []string) {
	for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// What the other tests trust finds what is renamed.
func TestParsePromQL(t *testing.T) {
	s := scrapedOf(map[string]float64{`x_total{a="1",b="2"}`: 1, `h_bucket{le="1",a="1"}`: 1, `y`: 1})
	for _, tc := range []struct{ expression, legend, want string }{
		{`sum by (a) (rate(x_total{b="2",instance=~"$instance"}[$__rate_interval]))`, "{{a}} {{instance}}", ""},
		{`histogram_quantile(0.99, sum by (le, a) (rate(h_bucket[5m]))) > 1 and y offset 15m unless on (job) y`, "", ""},
		{`max without (b) (x_total) / 2 == bool 1e3`, "", ""},
		{`x_total{b="3"}`, "", "x_total with b=3"},
		{`x_total{b=~"2|3"}`, "", "x_total with b=~2|3"},
		{`x_total{c!="3"} or z_total`, "", "x_total with the label c; z_total"},
		{`sum by (c) (x_total)`, "{{d}}", "the label c; the label d"},
		{`y * on (q) group_left (a) x_total`, "", "the label q"},
	} {
		if got := strings.Join(s.missing(tc.expression, tc.legend, nil), "; "); got != tc.want {
			t.Errorf("%s %s: missing %q, want %q", tc.expression, tc.legend, got, tc.want)
		}
	}
}
