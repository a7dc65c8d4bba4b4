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

	scene   []byte // which the shape is made of, and which its texts are parts of
	texts   []byte // the others
	adopted bool
}

// templateKey is what is told of a publish or a delivery, but for the message.
type templateKey struct {
	kind        sceneKind
	adopted     bool   // of a publish
	redelivered bool   // of a delivery
	queues      uint32 // of a publish

	vhost, exchange, key, queue, connection, tag []byte
}

type sceneKind uint8

const (
	ofPublish sceneKind = iota
	ofDelivery
)

// The bits of a scene's second byte.
const (
	adoptedScene     = 1
	redeliveredScene = 2
)

// A scene in bytes begins with its kind, its bits and how many queues there were, and then the sizes of its parts.
const (
	sceneSizes = 1 + 1 + 4
	sceneParts = 6
	sceneHead  = sceneSizes + 2*sceneParts
)

// append appends the scene.
func (c *templateKey) append(b []byte) []byte {
	var bits byte
	if c.adopted {
		bits |= adoptedScene
	}
	if c.redelivered {
		bits |= redeliveredScene
	}
	parts := [sceneParts][]byte{c.vhost, c.exchange, c.key, c.queue, c.connection, c.tag}
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

// sceneOf returns a scene that was appended, of whose bytes its names are parts.
func sceneOf(b []byte) (c templateKey) {
	le := binary.LittleEndian
	c.kind, c.adopted, c.redelivered, c.queues = sceneKind(b[0]), b[1]&adoptedScene != 0, b[1]&redeliveredScene != 0, le.Uint32(b[2:])
	sizes, rest := b[sceneSizes:], b[sceneHead:]
	for i, part := range [sceneParts]*[]byte{&c.vhost, &c.exchange, &c.key, &c.queue, &c.connection, &c.tag} {
		n := le.Uint16(sizes[2*i:])
		*part, rest = rest[:n], rest[n:]
	}
	return c
}

// make makes the shape of the spans of its scene.
func (s *SpanTemplate) make() {
	c := sceneOf(s.scene)
	queue, connection := stringOf(c.queue), stringOf(c.connection)
	s.adopted, s.Kind, s.Encoded = c.adopted, c.spanKind(), s.Encoded[:0]

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
	if c.kind == ofPublish && !c.adopted {
		return trace.SpanKindServer
	}
	return trace.SpanKindProducer
}

// shapes are those of the scenes that were there last: most messages take a way that others take too.
type shapes struct {
	seed maphash.Seed
	last []SpanTemplate // in the place that a scene's hash says
}

// maxShapes bounds them. One takes about 1.5 KB.
const maxShapes = 256

func newShapes() shapes {
	return shapes{seed: maphash.MakeSeed(), last: make([]SpanTemplate, maxShapes)}
}

func (k *shapes) of(scene []byte) *SpanTemplate {
	s := &k.last[maphash.Bytes(k.seed, scene)%maxShapes]
	if !bytes.Equal(s.scene, scene) {
		s.scene = append(s.scene[:0], scene...)
		s.make()
	}
	return s
}
