package report

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"iter"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/wire"
	"github.com/curfewmq/curfew/sdk/hook"
)

var update = flag.Bool("update", false, "write testdata/fields.txt")

// rowsOf returns rows with values.
func rowsOf[T any](values ...T) iter.Seq[Row] {
	return func(yield func(Row) bool) {
		for i, v := range values {
			if !yield(Row{Keys: Keys{Key: KeyOf(i), Natural: KeyOf("v")}, Value: v}) {
				return
			}
		}
	}
}

// readAll returns the values of all rows that can be read.
func readAll[T any](r io.Reader) (all []T, err error) {
	next := Read[T](r)
	for {
		row, err := next()
		if row == nil || err != nil {
			return all, err
		}
		all = append(all, row.Value.(T))
	}
}

func roundTrip[T any](t *testing.T, values ...T) {
	t.Helper()
	var b bytes.Buffer
	if err := Write[T](&b, rowsOf(values...)); err != nil {
		t.Fatal(err)
	}
	size := b.Len()
	got, err := readAll[T](&b)
	if err != nil || !reflect.DeepEqual(got, values) {
		t.Errorf("%T, %d bytes: got %+v, %v, want %+v", values, size, got, err, values)
	}
}

// What is written is read again, with nothing of one row in the next.
func TestRowsAreReadAsWritten(t *testing.T) {
	at := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	args := Args{
		{Name: "x-max-length", Value: int64(7)},
		{Name: "x", Value: amqp.Table{{Key: "list", Value: amqp.Array{true, nil, "text", 2.5, amqp.Timestamp(9)}}}},
	}
	full := Queue{
		QueueConfig: QueueConfig{
			Name: "q", VHost: "v", Node: "curfew@n1", Kind: "classic", Durable: true, Args: args, Policy: "p",
			Definition: Definition{{Key: "max-length", Value: json.Number("5")}, {Key: "x", Value: map[string]any{"y": []any{"z"}}}}, DeliveryLease: time.Minute,
		},
		Seen: true, Stats: queue.Stats{Ready: 5, ReadyBytes: 1 << 40, NextDeadline: 99, Counters: queue.Counters{Published: 6, Dropped: [hook.Reasons]uint64{3: 4}}},
		Now: 100, Head: queue.Head{Timestamp: 1, Oldest: 50}, ExclusiveTag: "c", Owner: &Peer{"n", "1.2.3.4:5"}, Rates: Rates{[]float64{0, 1.5}, true},
	}
	roundTrip(t, full, Queue{}, Queue{QueueConfig: QueueConfig{Name: "other"}}, full)
	roundTrip(t, Connection{
		Peer: Peer{"n", "a:1"}, Properties: Table{{Key: "product", Value: "x"}}, Opened: 7, TLS: &TLS{Version: 5, Certificate: &Certificate{"s", "i", at, at}},
		Status: session.Status{Channels: 3, Blocked: true}, Traffic: wire.Traffic{BytesIn: 9},
	}, Connection{})
	channel := Channel{Connection: Peer{"n", "a:1"}, ChannelInfo: session.ChannelInfo{Number: 3, Prefetch: 9}}
	channel.Deliveries[1][session.Acked] = 12
	roundTrip(t, channel, Channel{})
	roundTrip(t, Consumer{Tag: "t", Queue: "q", Arguments: Table{{Key: "k", Value: int32(1)}}, Active: true}, Consumer{})
	many := make([]Consumer, 3*batched+1)
	for i := range many {
		many[i].Tag = strconv.Itoa(i)
	}
	roundTrip(t, many...)
	roundTrip[Consumer](t)
}

// Nodes of two versions understand each other's rows because fields keep their names and types. A field that is renamed, here or in a type of
// another package, would be zero for nodes of the other version, and rows with an array of another length could not be read.
func TestFieldsKeepTheirNames(t *testing.T) {
	var b strings.Builder
	for _, row := range []any{Queue{}, Connection{}, Channel{}, Consumer{}} {
		describe(&b, reflect.TypeOf(row).Name(), reflect.TypeOf(row))
	}
	const path = "testdata/fields.txt"
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(b.String(), "\n")
	for line := range strings.SplitSeq(string(want), "\n") {
		if !slices.Contains(got, line) {
			t.Errorf("%s is gone: keep it, or raise Version; then nodes of both versions speak JSON", line)
		}
	}
	if b.String() != string(want) {
		t.Errorf("fields were added: go test ./core/report -run TestFieldsKeepTheirNames -update")
	}
}

// describe lists the fields that are sent of a type.
func describe(b *strings.Builder, path string, t reflect.Type) {
	_, encodes := reflect.TypeAssert[gob.GobDecoder](reflect.New(t))
	switch {
	case t.Kind() == reflect.Pointer:
		describe(b, path, t.Elem())
	case t.Kind() == reflect.Array:
		fmt.Fprintf(b, "%s %s\n", path, t)
	case t.Kind() != reflect.Struct || encodes || t == reflect.TypeFor[time.Time]():
		fmt.Fprintf(b, "%s %s\n", path, t.Kind())
	default:
		for f := range t.Fields() {
			if f.IsExported() {
				describe(b, path+"."+f.Name, f.Type)
			}
		}
	}
}

// Whatever another node sends is read or refused.
func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	args := Args{{Name: "x", Value: int64(7)}}
	if err := Write[Queue](&b, rowsOf(Queue{QueueConfig: QueueConfig{Name: "q", Args: args}, Owner: &Peer{}}, Queue{Seen: true})); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(b.Bytes()[:b.Len()/2])
	f.Fuzz(func(_ *testing.T, sent []byte) {
		_, _ = readAll[Queue](bytes.NewReader(sent))
	})
}
