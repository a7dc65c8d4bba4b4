package metrics

import (
	"bufio"
	"math"
	"slices"
	"strconv"
	"strings"
)

// textType is the media type of the text format.
const textType = "text/plain; version=0.0.4; charset=utf-8"

// text writes families in Prometheus' text format 0.0.4, a line at a time.
type text struct {
	*bufio.Writer
	line []byte
}

func (t *text) begin(name, help string, k Kind) {
	t.line = append(append(append(t.line[:0], "# HELP "...), name...), ' ')
	t.line = append(append(t.line, helpEscapes.Replace(help)...), "\n# TYPE "...)
	t.line = append(append(append(append(t.line, name...), ' '), k.String()...), '\n')
	t.flush()
}

// series writes the value of a series; names and values are its labels.
func (t *text) series(name string, names, values []string, value float64) {
	t.line = append(t.line[:0], name...)
	t.line = appendLabels(t.line, names, values)
	t.line = append(appendNumber(append(t.line, ' '), value), '\n')
	t.flush()
}

// flush writes the line. An error shows up when the writer is flushed at the end.
func (t *text) flush() { _, _ = t.Write(t.line) }

// family writes a whole family.
func (t *text) family(f *Family) {
	if len(f.Points) == 0 {
		return
	}
	t.begin(f.Name, f.Help, f.Kind)
	for i := range f.Points {
		p := &f.Points[i]
		l := p.Labels
		if l == nil {
			l = &Labels{}
		}
		if f.Kind == Histogram {
			t.histogram(f.Name, l, p)
			continue
		}
		t.series(f.Name, l.Names, l.Values, p.Value)
	}
}

func (t *text) histogram(name string, l *Labels, p *Point) {
	d, sum := &p.Distribution, uint64(0)
	names := append(slices.Clip(l.Names), "le")
	for i, n := range d.Counts {
		sum += n
		bound := math.Inf(1)
		if i < len(d.Bounds) {
			bound = d.Bounds[i]
		}
		le := string(appendNumber(nil, bound))
		t.series(name+"_bucket", names, append(slices.Clip(l.Values), le), float64(sum))
	}
	t.series(name+"_sum", l.Names, l.Values, d.Sum)
	t.series(name+"_count", l.Names, l.Values, float64(d.Count))
}

func appendLabels(b []byte, names, values []string) []byte {
	if len(names) == 0 {
		return b
	}
	for i, name := range names {
		sep := byte(',')
		if i == 0 {
			sep = '{'
		}
		b = append(append(append(b, sep), name...), '=', '"')
		b = append(append(b, labelEscapes.Replace(values[i])...), '"')
	}
	return append(b, '}')
}

// Replacers have no state.
var (
	labelEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
)

func appendNumber(b []byte, v float64) []byte {
	if math.IsInf(v, 1) {
		return append(b, "+Inf"...)
	}
	if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
		return strconv.AppendInt(b, int64(v), 10)
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}
