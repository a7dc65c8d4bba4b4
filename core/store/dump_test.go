package store

import (
	"io"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
)

func TestDescribe(t *testing.T) {
	definition := amqp.AppendTable(nil, amqp.Table{
		{Key: "op", Value: "queue.declare"},
		{Key: "vhost", Value: "/"},
		{Key: "arguments", Value: amqp.Table{
			{Key: "s", Value: "text"},
			{Key: "b", Value: true},
			{Key: "n", Value: int8(-1)},
			{Key: "v", Value: nil},
			{Key: "x", Value: []byte{1, 2}},
			{Key: "a", Value: amqp.Array{uint16(1), amqp.Table{}}},
		}},
	})
	for _, tt := range []struct {
		name  string
		entry []byte
		want  string
	}{
		{"nothing", nil, ""},
		{
			"definition", definition,
			`  queue.declare vhost="/" arguments={"s": "text", "b": true, "n": -1:byte, "v": void, "x": 0102:binary, "a": [1:unsignedshort, {}]}` + "\n",
		},
		{
			"password", amqp.AppendTable(nil, amqp.Table{{Key: "op", Value: "user.set"}, {Key: "name", Value: "u"}, {Key: "password", Value: []byte("secret")}}),
			`  user.set name="u" password=(6 bytes)` + "\n",
		},
		{
			"part of a rewrite", amqp.AppendTable(nil, (&part{of: scope{kind: scopeUsers}, first: true, definitions: amqp.AppendTable(nil, amqp.Table{
				{Key: "op", Value: "user.set"}, {Key: "password", Value: []byte("secret")},
			})}).definition()),
			`  rewrite of="users" vhost="" first=true last=false` + "\n    user.set password=(6 bytes)\n",
		},
		{
			"piece of a module", amqp.AppendTable(nil, amqp.Table{
				{Key: "op", Value: "module.part"}, {Key: "name", Value: "m"}, {Key: "digest", Value: []byte{1, 2}}, {Key: "bytes", Value: make([]byte, 9)},
			}),
			`  module.part name="m" digest=0102:binary bytes=(9 bytes)` + "\n",
		},
		{"cut definition", definition[:8], "  NOT UNDERSTOOD: definition: "},
		{"no operation", []byte{99, 1, 0, 0, 0, 0, 0, 0, 0}, "  NOT UNDERSTOOD: malformed queue operations: kind 99\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b strings.Builder
			must(t, Describe(&b, 0, tt.entry))
			if got := b.String(); got != tt.want && !(tt.want != "" && strings.HasPrefix(got, tt.want)) {
				t.Errorf("got %q\nwant %q", got, tt.want)
			}
		})
	}
}

func FuzzDescribe(f *testing.F) {
	f.Add(amqp.AppendTable(nil, numbersDefinition("/", 1)))
	f.Add(amqp.AppendTable(nil, (&part{definitions: amqp.AppendTable(nil, numbersDefinition("/", 1))}).definition()))
	f.Add([]byte{2, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, entry []byte) { must(t, Describe(io.Discard, 0, entry)) })
}
