package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// sample has the measurements of a row with one broker.
type sample struct {
	row    row
	broker string
	runs   []figures
	failed []string // errors of other runs
}

// relayName is the relay's name in the table.
const relayName = "relay"

var heading = []string{"scenario", "broker", "per s", "CPU-s/M", "from..to", "x relay", "p50 ms", "p99 ms", "RSS MiB", ""}

// median returns the median of the runs' values; NaN without any.
func (s sample) median(key string) float64 {
	all := s.values(key)
	if len(all) == 0 {
		return math.NaN()
	}
	middle := len(all) / 2
	if len(all)%2 == 0 {
		return (all[middle-1] + all[middle]) / 2
	}
	return all[middle]
}

// values returns the runs' values, sorted.
func (s sample) values(key string) (all []float64) {
	for _, f := range s.runs {
		if v, ok := f[key]; ok && key != "" {
			all = append(all, v)
		}
	}
	slices.Sort(all)
	return all
}

func (s sample) cells(relay sample) []string {
	cells := []string{s.row.name, s.broker, number(s.median(s.row.rate)), number(s.median(cpuKey)), s.spread(), "", number(s.median(s.row.p50)), number(s.median(s.row.p99)), "", ""}
	if s.broker != relayName {
		cells[5] = number(s.median(cpuKey) / relay.median(cpuKey))
		cells[8] = s.memory()
	}
	cells[9] = s.details()
	return cells
}

// spread returns the lowest and the highest of the runs' values.
func (s sample) spread() string {
	all := s.values(cpuKey)
	if len(all) < 2 {
		return ""
	}
	return number(all[0]) + ".." + number(all[len(all)-1])
}

func (s sample) memory() string {
	if s.row.fresh && !s.row.idle && len(s.runs) > 0 {
		return fmt.Sprintf("%s, peak %s", number(s.median(rssKey)/(1<<20)), number(s.median(peakKey)/(1<<20)))
	}
	return number(s.median(rssKey) / (1 << 20))
}

func (s sample) details() string {
	var parts []string
	for _, d := range s.row.also {
		if v := number(s.median(d.key) * d.scale); v != "" {
			parts = append(parts, v+" "+d.label)
		}
	}
	if len(s.failed) > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d FAILED", len(s.failed), len(s.failed)+len(s.runs)))
	}
	return strings.Join(parts, ", ")
}

// number formats v with three significant digits and separated thousands; "" for NaN.
func number(v float64) string {
	switch size := math.Abs(v); {
	case math.IsNaN(v), math.IsInf(v, 0):
		return ""
	case size >= 1000:
		unit := math.Pow(10, math.Floor(math.Log10(size))-2)
		return grouped(strconv.FormatInt(int64(math.Round(v/unit)*unit), 10))
	case size >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case size >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

func grouped(s string) string {
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// writeTable writes a Markdown table with aligned columns.
func writeTable(w io.Writer, samples []sample) error {
	lines := [][]string{heading}
	for _, s := range samples {
		lines = append(lines, s.cells(relayOf(s.row, samples)))
	}
	widths := make([]int, len(heading))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for n, line := range lines {
		writeLine(&b, line, widths)
		if n == 0 {
			b.WriteString(rule(widths))
		}
	}
	for _, s := range samples {
		for _, f := range s.failed {
			fmt.Fprintf(&b, "\n%s, %s: %s\n", s.row.name, s.broker, f)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func relayOf(r row, samples []sample) sample {
	for _, s := range samples {
		if s.row.name == r.name && s.broker == relayName {
			return s
		}
	}
	return sample{}
}

func writeLine(b *strings.Builder, line []string, widths []int) {
	for i, cell := range line {
		pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
		if words(i) {
			cell, pad = pad, cell
		}
		fmt.Fprintf(b, "| %s%s ", pad, cell)
	}
	b.WriteString("|\n")
}

func rule(widths []int) string {
	var b strings.Builder
	for i, width := range widths {
		line := strings.Repeat("-", width+1)
		if words(i) {
			b.WriteString("|" + line + "-")
			continue
		}
		b.WriteString("|" + line + ":")
	}
	return b.String() + "|\n"
}

// words marks the columns that are not numbers.
func words(column int) bool { return column < 2 || column == len(heading)-1 }
