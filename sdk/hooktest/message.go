package hooktest

import (
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// Content has a message's data beyond the fields of [hook.Message].
type Content struct {
	Exchange, RoutingKey string
	Headers              map[string]any
	Deaths               int
	Parts                map[hook.Part][]byte // other parts
}

// Source is a [hook.Source] made from contents, one for each message.
type Source []Content

var _ hook.Source = (*Source)(nil)

// Part implements [hook.Source].
func (s *Source) Part(i int, p hook.Part) []byte {
	c := &(*s)[i]
	switch p {
	case hook.PartExchange:
		return []byte(c.Exchange)
	case hook.PartRoutingKey:
		return []byte(c.RoutingKey)
	}
	return c.Parts[p]
}

// Header implements [hook.Source].
func (s *Source) Header(i int, name string) (any, bool) {
	v, ok := (*s)[i].Headers[name]
	return v, ok
}

// HeaderInt implements [hook.Source].
func (s *Source) HeaderInt(i int, name string) (int64, bool) {
	return hook.HeaderInt((*s)[i].Headers[name])
}

// HeaderText implements [hook.Source].
func (s *Source) HeaderText(i int, name string) ([]byte, bool) {
	switch v := (*s)[i].Headers[name].(type) {
	case string:
		return []byte(v), true
	case []byte:
		return v, true
	}
	return nil, false
}

// Deaths implements [hook.Source].
func (s *Source) Deaths(i int) int { return (*s)[i].Deaths }

// Bind gives messages their contents; messages without one get empty contents.
func Bind(ms []hook.Message, contents ...Content) {
	s := make(Source, max(len(ms), len(contents)))
	copy(s, contents)
	for i := range ms {
		ms[i].Bind(&s, i)
	}
}

// Messages returns ms with empty contents.
func Messages(ms ...hook.Message) []hook.Message {
	Bind(ms)
	return ms
}

// Scribble overwrites messages after a callback, as the broker does in tests: a plugin that retained them reads garbage, and panics when it
// reads their contents.
func Scribble(ms []hook.Message) {
	for i := range ms {
		ms[i] = hook.Message{
			Enqueued: -1, Deadline: -1, State: -1, Expiration: -1, Size: -1,
			Deliveries: 1<<32 - 1, Priority: 255, Why: 255, Redelivered: true, Persistent: true, Traced: true,
		}
		guest.SetMessageDigest(&ms[i], 1<<64-1)
		ms[i].Bind(returned{}, -1)
	}
}

// returned is the source of messages after their callback.
type returned struct{}

const kept = "hooktest: a message was read after its callback had returned"

func (returned) Part(int, hook.Part) []byte            { panic(kept) }
func (returned) Header(int, string) (any, bool)        { panic(kept) }
func (returned) HeaderInt(int, string) (int64, bool)   { panic(kept) }
func (returned) HeaderText(int, string) ([]byte, bool) { panic(kept) }
func (returned) Deaths(int) int                        { panic(kept) }
