package queue

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

// dumped returns operations as text, without "properties as before": what they say is the same.
func dumped(t *testing.T, ops []byte) string {
	t.Helper()
	var b bytes.Buffer
	if _, err := Dump(&b, ops); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// anyOps returns an operation of each kind for a queue.
func anyOps(b []byte, queue uint64) []byte {
	b = appendEnqueued(b, opEnqueued, queue, 1, 5, 6, &slot{}, len(wholeRecord("one")))
	b = append(b, wholeRecord("one")...)
	b = appendReturned(b, queue, 1, 2)
	b = appendDeadlineSet(b, queue, 1, 9, strategyData{state: 3}, 0)
	b = appendDeadlineSet(b, queue, 1, 9, strategyData{state: 3, digest: 4}, hasDigest)
	b = appendDeadLettering(b, queue, 1, hook.ReasonExpired)
	b = appendHeld(b, queue, 1, 77, heldUnready, 8)
	b = appendAsks(b, queue, 1)
	b = appendDelivered(b, queue, 0, 2)
	b = append(appendOp(b, opSettled, queue), 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0)
	return append(appendOp(b, opPurged, queue), 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0)
}

// wholeRecord returns the record of a message with properties and a body.
func wholeRecord(body string) []byte {
	b := []byte{0, 0, 0, 0, 1, 'x', 1, 'k', 4, 'p', 'r', 'o', 'p'} // age, exchange, key, properties
	return append(b, body...)
}

// bareRecord returns the record without its properties.
func bareRecord(body string) []byte {
	return append([]byte{0, 0, 0, 0, 1, 'x', 1, 'k'}, body...)
}

// Each operation goes to the journal of its queue, under the queue's other number, and says what it said.
func TestSplitter(t *testing.T) {
	var ops []byte
	for _, queue := range []uint64{1, 2, 3} {
		ops = anyOps(ops, queue)
	}
	got := map[int]string{}
	s := Splitter{
		Number: func(id uint64) (uint64, int, bool) { return id * 10, int(id % 2), id != 3 },
		Put: func(journal int, entry []byte, last uint64) error {
			got[journal] += dumped(t, entry)
			if want := map[int]uint64{0: 20, 1: 10}[journal]; last != want {
				t.Errorf("the last operation is one of queue %d, want %d", last, want)
			}
			return nil
		},
	}
	if err := errors.Join(split(&s, ops), s.Flush(), s.Flush()); err != nil {
		t.Fatal(err)
	}
	for journal, queue := range map[int]uint64{0: 2, 1: 1} {
		want := strings.ReplaceAll(dumped(t, anyOps(nil, queue)), fmt.Sprintf("queue %d:", queue), fmt.Sprintf("queue %d:", queue*10))
		if got[journal] != want {
			t.Errorf("journal %d has\n%s\nwant\n%s", journal, got[journal], want)
		}
	}
}

// split divides an entry that has no definitions.
func split(s *Splitter, ops []byte) error {
	rest, err := s.Entry(ops)
	if err == nil && len(rest) > 0 {
		err = errOps
	}
	return err
}

// An entry may have definitions among its operations: a Splitter stops before them.
func TestSplitterStopsBeforeDefinitions(t *testing.T) {
	ops := anyOps(nil, 1)
	s := Splitter{
		Number: func(id uint64) (uint64, int, bool) { return id, 0, true },
		Put:    func(int, []byte, uint64) error { return nil },
	}
	rest, err := s.Entry(append(slices.Clone(ops), 0, 1, 2))
	if err != nil || !bytes.Equal(rest, []byte{0, 1, 2}) {
		t.Errorf("got %v, %v", rest, err)
	}
}

// A message whose properties are those of another one has them itself where that one is not in the same entry: because its queue is in
// another journal, or was deleted, or because an entry has become long enough.
func TestSplitterComposesRecords(t *testing.T) {
	add := func(b []byte, kind byte, queue uint64, seq Ref, rec []byte) []byte {
		return append(appendEnqueued(b, kind, queue, seq, 0, 0, &slot{}, len(rec)), rec...)
	}
	long := strings.Repeat("x", splitEntry/2)
	var ops []byte
	ops = add(ops, opEnqueued, 9, 1, wholeRecord("deleted")) // of a queue that is left out
	ops = add(ops, opEnqueuedAlike, 1, 1, bareRecord("a"))
	ops = add(ops, opEnqueuedAlike, 2, 1, bareRecord("b"))
	ops = add(ops, opEnqueuedAlike, 1, 2, bareRecord(long))
	ops = add(ops, opEnqueuedAlike, 1, 3, bareRecord(long))
	ops = add(ops, opEnqueuedAlike, 1, 4, bareRecord("c"))
	ops = add(ops, opEnqueued, 2, 2, wholeRecord("d"))
	ops = add(ops, opEnqueuedAlike, 1, 5, bareRecord("e"))
	want := map[uint64][]string{1: {"a", long, long, "c", "e"}, 2: {"b", "d"}}
	got := map[uint64][]string{}
	wholes := 0
	s := Splitter{
		Number: func(id uint64) (uint64, int, bool) { return id, int(id), id != 9 },
		Put: func(_ int, entry []byte, _ uint64) error {
			in := reader{b: entry}
			for len(in.b) > 0 {
				kind, id := in.u8(), in.u64()
				whole := in.enqueue(kind)
				if kind == opEnqueued {
					wholes++
				}
				if in.bad || !bytes.HasPrefix(whole, wholeRecord("")) {
					t.Fatalf("queue %d: a message without its properties", id)
				}
				got[id] = append(got[id], string(whole[len(wholeRecord("")):]))
			}
			return nil
		},
	}
	if err := errors.Join(split(&s, ops), s.Flush()); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %.80v, want %.80v", got, want)
	}
	if wholes != 5 { // a, b, the second long one, d, e
		t.Errorf("%d messages have properties of their own", wholes)
	}
}

// FuzzSplitter has entries that nobody wrote refused, or divided into what can be read.
func FuzzSplitter(f *testing.F) {
	f.Add(anyOps(anyOps(nil, 1), 2))
	f.Fuzz(func(t *testing.T, ops []byte) {
		s := Splitter{
			Number: func(id uint64) (uint64, int, bool) { return id + 1, int(id % 3), id%5 != 0 },
			Put: func(_ int, entry []byte, _ uint64) error {
				again := Splitter{
					Number: func(id uint64) (uint64, int, bool) { return id, 0, true },
					Put:    func(int, []byte, uint64) error { return nil },
				}
				if err := split(&again, entry); err != nil {
					t.Errorf("what it has written: %v", err)
				}
				return nil
			},
		}
		if split(&s, ops) == nil && s.Flush() != nil {
			t.Error("not flushed")
		}
	})
}
