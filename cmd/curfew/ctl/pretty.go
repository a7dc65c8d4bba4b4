package ctl

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// prettyFormatter draws boxes around cells.
type prettyFormatter struct{ tableFormatter }

func (prettyFormatter) table(w io.Writer, t table) error {
	var lines [][]string
	if !t.bare {
		lines = append(lines, t.columns)
	}
	header := len(lines)
	for row, err := range t.rows {
		if err != nil {
			return err
		}
		lines = append(lines, texts(row))
	}
	if len(lines) == header {
		return nil
	}
	_, err := io.WriteString(w, boxed(lines))
	return err
}

func boxed(lines [][]string) string {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, text := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	var b strings.Builder
	for i, line := range lines {
		if i == 0 {
			b.WriteString(rule(widths, "┌", "┬", "┐"))
		} else {
			b.WriteString(rule(widths, "├", "┼", "┤"))
		}
		for i, text := range line {
			fmt.Fprintf(&b, "│ %-*s ", widths[i], text)
		}
		b.WriteString("│\n")
	}
	b.WriteString(rule(widths, "└", "┴", "┘"))
	return b.String()
}

func rule(widths []int, left, middle, right string) string {
	parts := make([]string, len(widths))
	for i, n := range widths {
		parts[i] = strings.Repeat("─", n+2)
	}
	return left + strings.Join(parts, middle) + right + "\n"
}
