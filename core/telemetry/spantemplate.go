package telemetry

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// SpanTemplate is what spans of messages that take the same way have in common.
type SpanTemplate struct {
	Name       string
	Kind       trace.SpanKind
	Attributes []attribute.KeyValue

	// Encoded is the sink's, for what it makes of the rest: it is empty until the sink has made something. Like the rest of a
	// shape it is valid during the call that it comes with, and nobody else touches it then.
	Encoded []byte

	key      []byte // which the shape is made of, and which its texts are parts of
	texts    []byte // the others
	injected bool
}

// templateKey is what is told of a publish or a delivery, but for the message.
type templateKey struct {
	kind        templateKind
	injected    bool   // of a publish
	redelivered bool   // of a delivery
	queues      uint32 // of a publish

	vhost, exchange, key, queue, connection, tag []byte
}

type templateKind uint8

const (
	ofPublish templateKind = iota
	ofDelivery
)

// The bits of a scene's second byte.
const (
	injectedBit    = 1
	redeliveredBit = 2
)

// A scene in bytes begins with its kind, its bits and how many queues there were, and then the sizes of its parts.
const (
	keySizesAt  = 1 + 1 + 4
	keyParts    = 6
	keyHeadSize = keySizesAt + 2*keyParts
)

// append appends the scene.
func (c *templateKey) append(b []byte) []byte {
	var bits byte
	if c.injected {
		bits |= injectedBit
	}
	if c.redelivered {
		bits |= redeliveredBit
	}
	parts := [keyParts][]byte{c.vhost, c.exchange, c.key, c.queue, c.connection, c.tag}
	b = append(b, byte(c.kind), bits)
	b = binary.LittleEndian.AppendUint32(b, c.queues)
	for i := range parts {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(parts[i]))) // they are names
	}
	for i := range parts {
		b = append(b, parts[i]...)
	}
	return b
}

// parseKey returns a scene that was appended, of whose bytes its names are parts.
func parseKey(b []byte) (c templateKey) {
	le := binary.LittleEndian
	c.kind, c.injected, c.redelivered, c.queues = templateKind(b[0]), b[1]&injectedBit != 0, b[1]&redeliveredBit != 0, le.Uint32(b[2:])
	sizes, rest := b[keySizesAt:], b[keyHeadSize:]
	for i, part := range [keyParts]*[]byte{&c.vhost, &c.exchange, &c.key, &c.queue, &c.connection, &c.tag} {
		n := le.Uint16(sizes[2*i:])
		*part, rest = rest[:n], rest[n:]
	}
	return c
}

// make makes the shape of the spans of its scene.
func (s *SpanTemplate) make() {
	c := parseKey(s.key)
	queue, connection := stringOf(c.queue), stringOf(c.connection)
	s.injected, s.Kind, s.Encoded = c.injected, c.spanKind(), s.Encoded[:0]

	operation, named := "publish", exchangeName(stringOf(c.exchange))
	if c.kind == ofDelivery {
		operation, named = "deliver", queue
	}
	s.texts = appendName(s.texts[:0], operation, named)
	name := len(s.texts)
	s.texts = appendDestination(s.texts, stringOf(c.exchange), stringOf(c.key), queue)
	s.Name = valid(stringOf(s.texts[:name]))

	as := append(s.Attributes[:0], systemKey.String("rabbitmq"), operationKey.String(operation))
	if c.kind == ofPublish {
		as = append(as, operationTypeKey.String("send"))
	} else if len(c.tag) == 0 {
		as = append(as, operationTypeKey.String("receive"))
	}
	as = append(as, text(destinationKey, stringOf(s.texts[name:])))
	as = appendText(as, routingKeyKey, stringOf(c.key))
	as = append(as, text(vhostKey, stringOf(c.vhost)))
	as = appendText(as, queueKey, queue)
	if c.kind == ofPublish {
		as = append(as, routedKey.Int(int(c.queues)))
	} else {
		as = append(as, redeliveredKey.Bool(c.redelivered))
	}
	as = appendText(as, consumerKey, stringOf(c.tag))
	s.Attributes = appendText(as, clientKey, connection)
}

func (c *templateKey) spanKind() trace.SpanKind {
	if c.kind == ofPublish && !c.injected {
		return trace.SpanKindServer
	}
	return trace.SpanKindProducer
}

// templateCache are those of the scenes that were there last: most messages take a way that others take too.
type templateCache struct {
	seed      maphash.Seed
	templates []SpanTemplate // in the place that a scene's hash says
}

// maxTemplates bounds them. One takes about 1.5 KB.
const maxTemplates = 256

func newTemplateCache() templateCache {
	return templateCache{seed: maphash.MakeSeed(), templates: make([]SpanTemplate, maxTemplates)}
}

func (k *templateCache) get(scene []byte) *SpanTemplate {
	s := &k.templates[maphash.Bytes(k.seed, scene)%maxTemplates]
	if !bytes.Equal(s.key, scene) {
		s.key = append(s.key[:0], scene...)
		s.make()
	}
	return s
}
