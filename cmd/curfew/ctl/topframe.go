package ctl

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Members of a state; a missing one is 0 or empty.

func number(v any) float64 {
	n, _ := v.(json.Number)
	f, _ := n.Float64()
	return f
}

func inner(o map[string]any, name string) map[string]any {
	m, _ := o[name].(map[string]any)
	return m
}

func textOf(v any) string {
	s, _ := v.(string)
	return s
}

// frame returns a state as lines of at most width characters. height is the greatest number of lines; 0 = any number.
func (t *top) frame(width, height int) []string {
	lines := t.head(width)
	const table, foot = 4, 2 // table: a header and some rows; foot: an empty line and the hint
	if height > 0 {
		lines = lines[:min(len(lines), max(height-table-foot, 1))]
	}
	if t.problem != "" {
		lines = append(lines, fitted(shownLine(t.problem), width))
	}
	for _, a := range alarmsOf(t.state) {
		lines = append(lines, fitted("ALARM "+a, width))
	}
	lines = append(lines, "")
	rows := t.rows(width)
	if height > 0 {
		lines = lines[:min(len(lines), height-foot-1)]
		t.room = max(height-len(lines)-foot, 1)
		rows = rows[:min(len(rows), t.room+1)]
	}
	lines = append(lines, rows...)
	if height > 0 {
		lines = append(lines, fitted(t.hint(), width))
	}
	return lines
}

// hint names the order of the queues, and the keys.
func (t *top) hint() string {
	return fmt.Sprintf("by %s, page %d of %d  q quit  s sort  n p page", t.sort, int(number(t.state["page"])), int(number(t.state["page_count"])))
}

func alarmsOf(state map[string]any) (all []string) {
	list, _ := state["alarms"].([]any)
	for _, a := range list {
		o, _ := a.(map[string]any)
		all = append(all, shownLine(textOf(o["name"])+": "+textOf(o["text"])))
	}
	return all
}

// head returns lines about the broker as a whole, the most important first.
func (t *top) head(width int) []string {
	s := t.state
	node, counts, totals, rates := inner(s, "node"), inner(s, "counts"), inner(s, "totals"), inner(s, "rates")
	broker := []string{strings.TrimSpace(shownLine(t.broker.text("product_name")) + " " + shownLine(t.broker.text("product_version"))), shownLine(t.broker.text("node"))}
	if up := number(node["uptime_ms"]); up > 0 {
		broker = append(broker, "up "+brief(time.Duration(up)*time.Millisecond))
	}
	broker = append(broker, time.UnixMilli(int64(number(s["at"]))).UTC().Format("15:04:05Z"))
	var moved []string
	for _, name := range []string{"publish", "deliver", "ack", "expired", "dead_lettered", "released"} {
		moved = append(moved, strings.ReplaceAll(name, "_", "-")+" "+rate(rates[name]))
	}
	var has []string
	for _, name := range []string{"ready", "unacked", "held"} {
		n := number(totals[name])
		if name == "held" {
			n += number(totals["delayed"])
		}
		has = append(has, name+" "+compact(n))
	}
	if late := inner(s, "lateness"); late != nil {
		has = append(has, "lateness p99 "+brief(time.Duration(number(late["p99"])*float64(time.Millisecond))))
	}
	if kept := inner(s, "overstay"); kept != nil {
		has = append(has, "kept past deadline p99 "+brief(time.Duration(number(kept["p99"])*float64(time.Millisecond))))
	}
	if next := inner(s, "next"); next != nil {
		in := time.Duration(number(next["at"])-number(s["at"])) * time.Millisecond
		has = append(has, fmt.Sprintf("next %s in %s", shownLine(textOf(next["kind"])), brief(max(in, 0))))
	}
	var clients []string
	for _, name := range []string{"connections", "channels", "consumers"} {
		clients = append(clients, name+" "+compact(number(counts[name])))
	}
	clients = append(clients, "queues "+compact(number(s["queues"])))
	if node != nil {
		clients = append(clients, "memory "+size(number(node["memory"]))+" of "+size(number(node["memory_limit"])),
			"disk "+size(number(node["disk_free"]))+" free, limit "+size(number(node["disk_limit"])))
	}
	var lines []string
	for _, group := range [][]string{broker, moved, has, clients} {
		lines = append(lines, filled(group, width)...)
	}
	return lines
}

// filled joins words into lines of at most width characters.
func filled(words []string, width int) (lines []string) {
	line := ""
	for _, w := range words {
		switch {
		case w == "":
		case line == "":
			line = w
		case widthOf(line)+2+widthOf(w) <= width:
			line += "  " + w
		default:
			lines, line = append(lines, fitted(line, width)), w
		}
	}
	return append(lines, fitted(line, width))
}

// topColumn is a column of the table of queues.
type topColumn struct {
	title string
	width int
	rank  int // columns with the greatest rank are left out first
	show  func(row map[string]any, now float64) string
}

func topColumns() []topColumn {
	of := func(name string) func(map[string]any, float64) string {
		return func(row map[string]any, _ float64) string { return compact(number(row[name])) }
	}
	return []topColumn{
		{"READY", 7, 1, of("ready")},
		{"UNACKED", 7, 6, of("unacked")},
		{"HELD", 7, 7, of("held")},
		{"IN/S", 7, 3, of("in")},
		{"OUT/S", 7, 4, of("out")},
		{"DUE", 6, 2, dueIn},
		{"LAG", 6, 5, lagOf},
		{"CONS", 5, 8, of("consumers")},
		{"BYTES", 8, 9, func(row map[string]any, _ float64) string { return size(number(row["bytes"])) }},
		{"STRATEGY", 12, 10, func(row map[string]any, _ float64) string { return shown(textOf(row["strategy"])) }},
	}
}

// dueIn returns how long it is until the next message expires or is released.
func dueIn(row map[string]any, now float64) string {
	at := number(row["next_deadline"])
	if r := number(row["next_release"]); at == 0 || r != 0 && r < at {
		at = r
	}
	switch {
	case at == 0:
		return "-"
	case at <= now:
		return "now"
	}
	return brief(time.Duration(at-now) * time.Millisecond)
}

// lagOf returns how long the oldest ready message has been in the queue.
func lagOf(row map[string]any, now float64) string {
	at := number(row["oldest"])
	if at == 0 {
		return "-"
	}
	return brief(time.Duration(max(now-at, 0)) * time.Millisecond)
}

// leastName is the least width of the column of names.
const leastName = 14

// rows returns the table of queues, with a header.
func (t *top) rows(width int) []string {
	columns := topColumns()
	for wide := func() int {
		n := leastName
		for _, c := range columns {
			n += 1 + c.width
		}
		return n
	}; wide() > width; {
		last := slices.MaxFunc(columns, func(a, b topColumn) int { return a.rank - b.rank })
		columns = slices.DeleteFunc(columns, func(c topColumn) bool { return c.rank == last.rank })
	}
	name := width
	for _, c := range columns {
		name -= 1 + c.width
	}
	name = min(name, 60)
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = right(c.title, c.width)
	}
	lines := []string{padded("QUEUE", name) + " " + strings.Join(titles, " ")}
	rows, now := inner(t.state, "rows"), number(t.state["at"])
	order, _ := t.state["order"].([]any)
	for _, key := range order {
		row := inner(rows, textOf(key))
		cells := make([]string, len(columns))
		for i, c := range columns {
			cells[i] = right(c.show(row, now), c.width)
		}
		lines = append(lines, padded(nameOf(row), name)+" "+strings.Join(cells, " "))
	}
	return lines
}

// nameOf returns a queue's name, made safe for terminals, because clients choose it.
func nameOf(row map[string]any) string {
	name := shown(textOf(row["name"]))
	if v := textOf(row["vhost"]); v != "/" {
		name += " in " + shown(v)
	}
	return name
}

// shownLine makes a text safe for terminals. It may contain blanks.
func shownLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r != ' ' && !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

// rate formats a number per second; nil is one that is not known yet.
func rate(v any) string {
	if v == nil {
		return "-"
	}
	return compact(number(v)) + "/s"
}

// compact formats a number with at most six characters.
func compact(n float64) string {
	switch {
	case n < 10 && n != float64(int64(n)):
		return fmt.Sprintf("%.1f", n)
	case n < 99_999.5:
		return fmt.Sprintf("%.0f", n)
	}
	for _, unit := range []string{"k", "M", "G", "T", "P"} {
		if n /= 1000; n < 999.5 {
			return fmt.Sprintf("%.3g%s", n, unit)
		}
	}
	return fmt.Sprintf("%.3gE", n/1000)
}

// size formats a number of bytes.
func size(n float64) string {
	if n < 1000 {
		return fmt.Sprintf("%.0f B", n)
	}
	for _, unit := range []string{"kB", "MB", "GB", "TB"} {
		if n /= 1000; n < 999.5 {
			return fmt.Sprintf("%.3g %s", n, unit)
		}
	}
	return fmt.Sprintf("%.3g PB", n/1000)
}

// brief formats a duration with at most six characters.
func brief(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0fs", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0fm", d.Minutes())
	case d < 2*day:
		return fmt.Sprintf("%.0fh", d.Hours())
	}
	return fmt.Sprintf("%dd", int64(d/day))
}

// runeWidth returns how many columns a terminal uses for a character: 0 for combining characters, which appear on the character before,
// 2 for East Asian characters and emoji, otherwise 1.
func runeWidth(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case r >= 0x1100 && r <= 0x115F, r >= 0x2E80 && r <= 0xA4CF, r >= 0xAC00 && r <= 0xD7A3, r >= 0xF900 && r <= 0xFAFF,
		r >= 0xFE30 && r <= 0xFE6F, r >= 0xFF00 && r <= 0xFF60, r >= 0xFFE0 && r <= 0xFFE6, r >= 0x1F300 && r <= 0x1FAFF, r >= 0x20000 && r <= 0x3FFFD:
		return 2
	}
	return 1
}

func widthOf(s string) (n int) {
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

// fitted truncates a text to a width.
func fitted(s string, width int) string {
	if widthOf(s) <= width {
		return s
	}
	var b strings.Builder
	left := width - 1
	for _, r := range s {
		if left -= runeWidth(r); left < 0 {
			break
		}
		b.WriteRune(r)
	}
	return b.String() + "…"
}

// padded fits a text to a width, with spaces on the right.
func padded(s string, width int) string {
	s = fitted(s, width)
	return s + strings.Repeat(" ", width-widthOf(s))
}

// right fits a text to a width, with spaces on the left.
func right(s string, width int) string {
	s = fitted(s, width)
	return strings.Repeat(" ", width-widthOf(s)) + s
}
