package telemetry

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// SpanTemplate has the common parts of the spans of messages with the same path through the broker.
type SpanTemplate struct {
	Name       string
	Kind       trace.SpanKind
	Attributes []attribute.KeyValue

	// Encoded belongs to the sink, for its encoding of the other fields; it is empty at first. Like the other fields it is valid during the
	// sink's call, and only the sink uses it then.
	Encoded []byte

	key      []byte // the encoded templateKey; some texts are parts of it
	texts    []byte // contains the other texts
	injected bool
}

// templateKey has the facts of a publish or a delivery, except those of the message.
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

// Bits of an encoded key's second byte.
const (
	injectedBit    = 1
	redeliveredBit = 2
)

// The encoding of a key: its kind, its bits, the number of queues, the sizes of its texts, and the texts.
const (
	keySizesAt  = 1 + 1 + 4
	keyParts    = 6
	keyHeadSize = keySizesAt + 2*keyParts
)

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
		b = binary.LittleEndian.AppendUint16(b, uint16(len(parts[i]))) // names are short
	}
	for i := range parts {
		b = append(b, parts[i]...)
	}
	return b
}

// parseKey decodes a key. Its texts are parts of b.
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

// make fills in the template from its key.
func (s *SpanTemplate) make() {
	c := parseKey(s.key)
	queue, connection := stringOf(c.queue), stringOf(c.connection)
	s.injected, s.Kind, s.Encoded = c.injected, c.spanKind(), s.Encoded[:0]

	s.texts = appendDestination(s.texts[:0], stringOf(c.exchange), stringOf(c.key), queue)
	end := len(s.texts)
	destination := stringOf(s.texts[:end])
	operation, named := c.operation(), destination
	if c.kind == ofDelivery {
		named = queue
	}
	s.texts = appendName(s.texts, operation, named)
	s.Name, destination = valid(stringOf(s.texts[end:])), stringOf(s.texts[:end])

	as := append(s.Attributes[:0], systemKey.String("rabbitmq"), operationKey.String(operation))
	if c.kind == ofPublish {
		as = append(as, operationTypeKey.String("send"))
	} else if len(c.tag) == 0 {
		as = append(as, operationTypeKey.String("receive"))
	}
	as = append(as, text(destinationKey, destination))
	if anonymous(named) {
		as = append(as, anonymousKey.Bool(true))
	}
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

// operation returns the operation of the client or the broker.
func (c *templateKey) operation() string {
	switch {
	case c.kind == ofPublish:
		return "publish"
	case len(c.tag) == 0:
		return "receive"
	}
	return "deliver"
}

// spanKind returns the kind of the span. A client waits while the broker publishes or fetches a message for it. A publish
// that gives the message its context produces the message; so does the broker towards a consumer, which did not ask.
func (c *templateKey) spanKind() trace.SpanKind {
	switch {
	case c.kind == ofPublish && c.injected, c.kind == ofDelivery && len(c.tag) > 0:
		return trace.SpanKindProducer
	}
	return trace.SpanKindServer
}

// templateCache has the templates that were used last: most messages share their path with others.
type templateCache struct {
	seed      maphash.Seed
	templates []SpanTemplate // at the index of the key's hash
}

// maxTemplates is the cache's size. A template takes about 1.5 KB.
const maxTemplates = 256

func (c *templateCache) get(key []byte) *SpanTemplate {
	t := &c.templates[maphash.Bytes(c.seed, key)%maxTemplates]
	if !bytes.Equal(t.key, key) {
		t.key = append(t.key[:0], key...)
		t.make()
	}
	return t
}
