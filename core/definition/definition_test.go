package definition

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
)

func TestRead(t *testing.T) {
	b := amqp.AppendTable(nil, New("set", amqp.Field{Key: "name", Value: "n"}, amqp.Field{Key: "size", Value: int64(3)}))
	for d, err := range Parse(b) {
		if err != nil || d.Op != "set" || d.VHost != "" || d.Size != len(b) {
			t.Fatalf("got %+v, %v", d, err)
		}
		var name string
		var size int64
		Read(d, "name", &name, &err)
		Read(d, "size", &size, &err)
		if err != nil || name != "n" || size != 3 {
			t.Errorf("got %q, %d, %v", name, size, err)
		}
		Read(d, "size", &name, &err)
		Read(d, "nothing", &name, &err) // the first error stays
		if want := `definition "set": size is of type long`; fmt.Sprint(err) != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// Parts have roughly the intended size, concatenate to all definitions, and stop when the caller does.
func TestParts(t *testing.T) {
	var all []byte
	tables := func(yield func(amqp.Table) bool) {
		all = nil
		for range 100 {
			def := New("set", amqp.Field{Key: "value", Value: strings.Repeat("x", 1000)})
			all = amqp.AppendTable(all, def)
			if !yield(def) {
				return
			}
		}
	}
	var got []byte
	parts := 0
	for b := range Parts(tables) {
		if len(b) > PartSize+1100 {
			t.Errorf("a part of %d bytes", len(b))
		}
		got = append(got, b...)
		parts++
	}
	if parts != 4 || !bytes.Equal(got, all) {
		t.Errorf("%d parts with %d bytes of %d", parts, len(got), len(all))
	}
	for range Parts(tables) {
		break
	}
	if len(all) > PartSize+1100 {
		t.Errorf("%d bytes were asked for after the first part", len(all))
	}
}
