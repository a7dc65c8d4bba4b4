package bench

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// report is the result of a run, in the order of its output. Values are int64, float64 or string.
type report struct {
	scenario string
	fields   []field
}

type field struct {
	key, label string // key: in JSON, with its unit; label: in text
	value      any
	unit       string
}

func (r *report) add(key, label string, value any, unit string) {
	r.fields = append(r.fields, field{key, label, value, unit})
}

// quantiles adds a distribution in milliseconds, unless it is empty.
func (r *report) quantiles(key, label string, h *histogram) {
	if h.n == 0 {
		return
	}
	for _, q := range []struct {
		key string
		q   float64
	}{{"p50", 0.5}, {"p99", 0.99}, {"p999", 0.999}, {"max", 1}} {
		r.add(key+"_"+q.key+"_ms", label+" "+q.key, millis(h.quantile(q.q)), "ms")
	}
}

// cost adds the broker's cost for n messages, between two samples of its process, and the generator's cost for the whole run.
func (r *report) cost(s *session, n int64, from, to usage) {
	if s.o.pid > 0 {
		cpu := (to.cpu - from.cpu).Seconds()
		r.add("broker_cpu_seconds", "broker CPU", cpu, "s")
		if n > 0 {
			r.add("broker_cpu_seconds_per_million", "broker CPU per million", cpu/float64(n)*1e6, "s")
		}
		r.add("broker_rss_before_bytes", "broker RSS before", s.start.rss, "B")
		r.add("broker_rss_after_bytes", "broker RSS after", to.rss, "B")
		r.add("broker_rss_peak_bytes", "broker RSS peak since its start", to.peak, "B")
	}
	r.add("generator_cpu_seconds", "generator CPU", (ownCPU() - s.own).Seconds(), "s")
}

func (r *report) writeText(w io.Writer) error {
	var b bytes.Buffer
	for _, f := range r.fields {
		b.WriteString(strings.TrimRight(fmt.Sprintf("%-40s %16s %s", f.label, text(f.value), f.unit), " ") + "\n")
	}
	_, err := w.Write(b.Bytes())
	return err
}

func text(v any) string {
	switch v := v.(type) {
	case int64:
		return grouped(v)
	case float64:
		if math.Abs(v) >= 1000 {
			return grouped(int64(math.Round(v)))
		}
		return strconv.FormatFloat(v, 'f', decimals(v), 64)
	}
	return fmt.Sprint(v)
}

// decimals returns the number of decimals for about four significant digits.
func decimals(v float64) int {
	switch v = math.Abs(v); {
	case v >= 100:
		return 1
	case v >= 10:
		return 2
	}
	return 3
}

func (r *report) writeJSON(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\"scenario\":%q", cmp.Or(r.scenario, "load"))
	for _, f := range r.fields {
		v, err := json.Marshal(f.value)
		if err != nil {
			return fmt.Errorf("%s: %w", f.key, err)
		}
		fmt.Fprintf(&b, ",%q:%s", f.key, v)
	}
	b.WriteString("}\n")
	_, err := w.Write(b.Bytes())
	return err
}

func millis(ns int64) float64 { return float64(ns) / 1e6 }

// grouped formats a number with commas: 1,234,567.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	first := 0
	if n < 0 {
		first = 1
	}
	for i := len(s) - 3; i > first; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// rate returns n per second between two instants; 0 if from is not before to.
func rate(n, from, to int64) float64 {
	if to <= from {
		return 0
	}
	return float64(n) / (float64(to-from) / 1e9)
}
