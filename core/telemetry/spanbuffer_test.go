package telemetry

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
)

// noting records a publish, a delivery and a delivery of a message with too many headers to be buffered.
func noting(s *Spans) {
	s.Published(message(traced), "app", 2)
	s.Delivered(message(traced), "q", noon-5, "worker", "tag", true)
	s.Published(message(table(amqp.Field{Key: "traceparent", Value: sampled}, amqp.Field{Key: "large", Value: strings.Repeat("x", maxBufferedProps)})), "app", 1)
	m := message(nil)
	m.Props, m.Injected = []byte{0, 0}, true
	s.Published(m, "", 0)
	s.Delivered(m, "q", 0, "", "", false)
}

// Buffered spans equal those that would have been made at once.
func TestNotes(t *testing.T) {
	want := tapeOf(t, SpanOptions{}, noting)
	told := 0
	got := tapeOf(t, SpanOptions{FlushDue: func() { told++ }, MaxBuffered: 10, FlushEvery: 2}, func(s *Spans) {
		noting(s)
		if n := s.Made(); n != 1 {
			t.Errorf("%d spans were made at once, want that of the large message", n)
		}
		s.Flush()
		s.Flush()
	})
	if told != 2 {
		t.Errorf("told %d times that there are many, want 2 for 4 notes", told)
	}
	got[0], got[1], got[2] = got[1], got[2], got[0]
	for i := range want {
		if i > 2 {
			want[i].Trace, want[i].ID, got[i].Trace, got[i].ID = [16]byte{}, [8]byte{}, [16]byte{}, [8]byte{}
		}
		want[i].name, want[i].destination, got[i].name, got[i].destination = nil, nil, nil, nil
		if want[i].Parent.IsValid() {
			want[i].ID = got[i].ID // made up for each
		}
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("got  %+v\nwant %+v", got[i], want[i])
		}
	}
}

// However many paths messages take, each span describes its own message.
func TestEachNoteHasItsScene(t *testing.T) {
	tell := func(s *Spans) {
		for i := range 3 * maxTemplates {
			queue := fmt.Sprint("q", i%(2*maxTemplates))
			s.Delivered(message(traced), queue, noon-5, "app", "tag", i%3 == 0)
			if i%2 == 0 {
				s.Published(message(traced), "app", i)
			}
		}
	}
	want := tapeOf(t, SpanOptions{}, tell)
	got := tapeOf(t, SpanOptions{FlushDue: func() {}, MaxBuffered: 10 * maxTemplates, FlushEvery: 10}, func(s *Spans) {
		tell(s)
		s.Flush()
	})
	if len(got) != len(want) {
		t.Fatalf("%d spans, want %d", len(got), len(want))
	}
	for i := range want {
		if g, w := got[i], want[i]; g.Name != w.Name || g.Kind != w.Kind || !maps.Equal(g.attributes, w.attributes) {
			t.Fatalf("span %d: got  %s %v\nwant %s %v", i, g.Name, g.attributes, w.Name, w.attributes)
		}
	}
}

// Spans that are not flushed do not accumulate.
func TestNotesAreBounded(t *testing.T) {
	to := &tape{}
	s := NewSpans(SpanOptions{Sink: to, FlushDue: func() {}, MaxBuffered: 3, FlushEvery: 100})
	for range 5 {
		s.Published(message(traced), "app", 1)
	}
	if s.Dropped() != 2 {
		t.Errorf("%d dropped, want 2", s.Dropped())
	}
	s.Flush()
	s.Published(message(traced), "app", 1)
	s.Flush()
	if len(to.spans) != 4 || s.Made() != 6 || s.Dropped() != 2 {
		t.Errorf("%d arrived, %d made, %d dropped; want 4, 6, 2", len(to.spans), s.Made(), s.Dropped())
	}
}

// Large messages fill the buffer's memory before the limit on their number; flushDue is called before that.
func TestLargeNotesAreToldOf(t *testing.T) {
	told := false
	s := NewSpans(SpanOptions{Sink: nowhere{}, FlushDue: func() { told = true }, MaxBuffered: 1 << 20, FlushEvery: 1 << 20})
	m := message(table(amqp.Field{Key: "large", Value: strings.Repeat("x", maxBufferedProps/2)}))
	for range 4 * maxBufferBytes / maxBufferedProps {
		s.Published(m, "app", 1)
		if told {
			told = false
			s.Flush()
		}
	}
	if s.Made() == 0 || s.Dropped() != 0 {
		t.Errorf("%d were made, %d dropped; want some and none", s.Made(), s.Dropped())
	}
}

func TestNotesCostNoMemory(t *testing.T) {
	if lossyPools {
		t.Skip("the race detector has sync.Pool drop what it is given")
	}
	s := NewSpans(SpanOptions{Sink: nowhere{}, FlushDue: func() {}, MaxBuffered: 10_000, FlushEvery: 100})
	m := message(table(amqp.Field{Key: "traceparent", Value: sampled}))
	do := func() {
		for range 10 {
			s.Published(m, "app", 1)
			s.Delivered(m, "q", noon, "app", "tag", false)
		}
		s.Flush()
	}
	do()
	do() // both pieces of memory are there
	if n := testing.AllocsPerRun(100, do); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkNotes(b *testing.B) {
	s := NewSpans(SpanOptions{Sink: nowhere{}, FlushDue: func() {}, MaxBuffered: 1 << 20, FlushEvery: 1 << 20})
	m := message(traced)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Delivered(m, "q", noon, "app", "tag", false)
		if i%512 == 0 {
			s.Flush()
		}
	}
}
