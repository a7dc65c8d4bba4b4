package telemetry

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"
	"unicode"

	"go.opentelemetry.io/otel/attribute"

	core "github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// printer is a sink that writes spans as text for people. It implements [sink].
type printer struct {
	to            io.Writer
	printed, lost atomic.Uint64

	mu      sync.Mutex // guards the fields below
	pages   []string   // waiting to be written
	closing bool
	wake    chan struct{} // has the capacity 1; a value means that there are pages, or the printer is closing
	ended   chan struct{} // closed when the goroutine has ended
}

// maxPages bounds the waiting pages.
const maxPages = 4096

func newPrinter(to io.Writer) *printer {
	return &printer{to: to, wake: make(chan struct{}, 1), ended: make(chan struct{})}
}

// Start implements [sink]. It does not call flush: the core must not buffer spans.
func (p *printer) Start(context.Context, func()) error {
	go p.run()
	return nil
}

func (p *printer) kick() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Take implements [core.Sink].
func (p *printer) Take(s *core.Span) bool {
	text := page(s)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing || len(p.pages) >= maxPages {
		return false
	}
	p.pages = append(p.pages, text)
	p.kick()
	return true
}

// run writes pages until the printer is closed.
func (p *printer) run() {
	defer close(p.ended)
	for last := false; !last; {
		<-p.wake
		var pages []string
		pages, last = p.swap()
		if _, err := io.WriteString(p.to, strings.Join(pages, "")); err != nil { // the reader has ended
			p.lost.Add(uint64(len(pages)))
			continue
		}
		p.printed.Add(uint64(len(pages)))
	}
}

// swap returns the waiting pages, and reports whether they are the last.
func (p *printer) swap() (pages []string, last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pages, p.pages = p.pages, nil
	return pages, p.closing
}

func (p *printer) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closing = true
	p.mu.Unlock()
	p.kick()
	select {
	case <-p.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *printer) Exported() (printed, lost uint64) { return p.printed.Load(), p.lost.Load() }

// page formats a span:
//
//	expire orders (5.001s)
//	  trace   0af7651916cd43dd8448eb211c80319c
//	  span    b7ad6b7169203331, child of 00f067aa0ba902b7
//	  began   2026-11-21T10:00:00Z
//	  curfew.expiry.strategy   deadline
//	  +5s       due
func page(s *core.Span) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%v)\n", printable(s.Name), took(s, s.Ended))
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "  trace\t%s\n  span\t%s", s.Trace, s.ID)
	if s.Parent.IsValid() {
		fmt.Fprintf(w, ", child of %s", s.Parent)
	}
	if s.Link.IsValid() && s.Link != s.Parent {
		fmt.Fprintf(w, ", linked to %s", s.Link)
	}
	fmt.Fprintf(w, "\n  began\t%s\n", s.Began.Time().Format(time.RFC3339Nano))
	if s.Failure != "" {
		fmt.Fprintf(w, "  error\t%s\n", printable(s.Failure))
	}
	if s.Template != nil {
		list(w, s.Template.Attributes)
	}
	list(w, s.Attributes)
	for i := range s.Events {
		fmt.Fprintf(w, "  +%v\t%s\n", took(s, s.Events[i].At), line(&s.Events[i]))
	}
	_ = w.Flush() // to memory
	b.WriteString("\n")
	return b.String()
}

func list(w io.Writer, as []attribute.KeyValue) {
	for _, a := range as {
		fmt.Fprintf(w, "  %s\t%s\n", printable(string(a.Key)), value(a))
	}
}

// took returns the time from the beginning of a span.
func took(s *core.Span, to hook.Instant) time.Duration {
	return to.Sub(s.Began).Round(time.Microsecond)
}

func line(h *core.SpanEvent) string {
	words := []string{printable(h.Name)}
	for _, a := range h.Attributes {
		words = append(words, printable(string(a.Key))+"="+value(a))
	}
	return strings.Join(words, " ")
}

func value(a attribute.KeyValue) string { return printable(a.Value.String()) }

// printable replaces characters with which a client could move the terminal's cursor or change the direction of text.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '.'
		}
		return r
	}, s)
}
