package telemetry

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"
	"unicode"

	"go.opentelemetry.io/otel/attribute"
)

// printer is a sink that writes spans for somebody who looks at them.
type printer struct {
	to      io.Writer
	printed atomic.Uint64
}

// take implements [sink].
func (p *printer) take(s *span) {
	_, _ = io.WriteString(p.to, page(s)) // nobody looks any more, then
	p.printed.Add(1)
}

// close implements [sink].
func (p *printer) close(context.Context) error { return nil }

// exported implements [sink].
func (p *printer) exported() (taken, lost uint64) { return p.printed.Load(), 0 }

// page is what there is to see of a span:
//
//	expire orders (5.001s)
//	  trace   0af7651916cd43dd8448eb211c80319c
//	  span    b7ad6b7169203331, child of 00f067aa0ba902b7
//	  began   2026-11-21T10:00:00Z
//	  curfew.expiry.strategy   deadline
//	  +5s       due
func page(s *span) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%v)\n", printable(s.name), took(s, s.ended))
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "  trace\t%s\n  span\t%s", s.context.TraceID(), s.context.SpanID())
	if s.parent.IsValid() {
		fmt.Fprintf(w, ", child of %s", s.parent.SpanID())
	}
	for _, l := range s.links {
		if to := l.SpanContext.SpanID(); to != s.parent.SpanID() {
			fmt.Fprintf(w, ", linked to %s", to)
		}
	}
	fmt.Fprintf(w, "\n  began\t%s\n", s.began.UTC().Format(time.RFC3339Nano))
	if s.failure != "" {
		fmt.Fprintf(w, "  error\t%s\n", printable(s.failure))
	}
	for _, a := range s.attributes {
		fmt.Fprintf(w, "  %s\t%s\n", printable(string(a.Key)), value(a))
	}
	for _, e := range s.events {
		fmt.Fprintf(w, "  +%v\t%s\n", took(s, e.at), e.line())
	}
	_ = w.Flush() // into memory
	b.WriteString("\n")
	return b.String()
}

// took is the time from the beginning of a span.
func took(s *span, to time.Time) time.Duration {
	return to.Sub(s.began).Round(time.Microsecond)
}

func (e *event) line() string {
	words := []string{printable(e.name)}
	for _, a := range e.attributes {
		words = append(words, printable(string(a.Key))+"="+value(a))
	}
	return strings.Join(words, " ")
}

func value(a attribute.KeyValue) string { return printable(a.Value.String()) }

// printable keeps what a client chose from moving a terminal's cursor, or turning the direction of its text.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '.'
		}
		return r
	}, s)
}
