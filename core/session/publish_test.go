package session

import (
	"bytes"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/block"
)

// got fetches a message with basic.get.
func (p *probe) got(channel uint16, name string) (m *amqp.BasicGetOK, props amqp.Properties, body string) {
	p.t.Helper()
	m = do[*amqp.BasicGetOK](p, channel, &amqp.BasicGet{Queue: name, NoAck: true})
	props, body = p.content(channel)
	return m, props, body
}

// holds expects a queue to have this many ready messages.
func (p *probe) holds(channel uint16, name string, n uint32) {
	p.t.Helper()
	if m := do[*amqp.QueueDeclareOK](p, channel, &amqp.QueueDeclare{Queue: name, Passive: true}); m.MessageCount != n {
		p.t.Errorf("messages in %s: got %d, want %d", name, m.MessageCount, n)
	}
}

func TestContentFrameOrder(t *testing.T) {
	publish := methodFrame(1, &amqp.BasicPublish{RoutingKey: "q"})
	header := amqp.AppendContentHeader(nil, 1, 3, []byte{0, 0})
	qos := methodFrame(1, &amqp.BasicQos{})
	const unexpected = "UNEXPECTED_FRAME - expected "
	const notHeader = unexpected + "content header for class 60, got non content header frame instead"
	const notBody = unexpected + "content body, got non content body frame instead"
	const notMethod = unexpected + "method frame, got non method frame instead"
	tests := []struct {
		name   string
		frames [][]byte
		code   uint16
		text   string
		in     [2]uint16
	}{
		{"header first", [][]byte{header}, 505, notMethod, [2]uint16{}},
		{"body first", [][]byte{rawFrame(3, 1, "abc")}, 505, notMethod, [2]uint16{}},
		{"method for header", [][]byte{publish, qos}, 505, notHeader, [2]uint16{60, 40}},
		{"body for header", [][]byte{publish, rawFrame(3, 1, "abc")}, 505, notHeader, [2]uint16{60, 40}},
		{"header of queue", [][]byte{publish, rawFrame(2, 1, "\x00\x32\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")}, 505, unexpected + "content header for class 60, got one for class 50 instead", [2]uint16{60, 40}},
		{"header for body", [][]byte{publish, header, header}, 505, notBody, [2]uint16{60, 40}},
		{"method for body", [][]byte{publish, header, qos}, 505, notBody, [2]uint16{60, 40}},
		{"publish for body", [][]byte{publish, header, publish}, 505, notBody, [2]uint16{60, 40}},
		{"body after the end", [][]byte{publish, header, rawFrame(3, 1, "abc"), rawFrame(3, 1, "d")}, 505, notMethod, [2]uint16{}},
		{"body too long", [][]byte{publish, header, rawFrame(3, 1, "abcd")}, 501, "FRAME_ERROR - content body frame exceeds remaining content size", [2]uint16{60, 40}},
		{"parts too long", [][]byte{publish, header, rawFrame(3, 1, "ab"), rawFrame(3, 1, "cd")}, 501, "FRAME_ERROR - content body frame exceeds remaining content size", [2]uint16{60, 40}},
		{"huge body", [][]byte{publish, amqp.AppendContentHeader(nil, 1, 1<<63, []byte{0, 0})}, 501, "FRAME_ERROR - content body size 9223372036854775808 exceeds maximum allowed size 536870912", [2]uint16{60, 40}},
		{"bad properties", [][]byte{publish, amqp.AppendContentHeader(nil, 1, 0, []byte{0x80, 0, 5})}, 502, "SYNTAX_ERROR - content-type: 6 octets needed, 1 left", [2]uint16{60, 40}},
		{"bad arguments", [][]byte{rawFrame(1, 1, "\x00\x3c\x00\x28\x00\x00\x09x")}, 502, "", [2]uint16{60, 40}},
	}
	for _, tt := range tests {
		for _, split := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,split=%v", tt.name, split), func(t *testing.T) {
				p := newProbe(t).open().channel(1)
				if split {
					for _, f := range tt.frames {
						p.feed(f)
					}
				} else {
					p.feed(bytes.Join(tt.frames, nil))
				}
				m := expect[*amqp.ConnectionClose](p, 0)
				if m.ReplyCode != tt.code || tt.text != "" && m.ReplyText != tt.text {
					t.Errorf("connection.close:\n got %d %s\nwant %d %s", m.ReplyCode, m.ReplyText, tt.code, tt.text)
				}
				if got := [2]uint16{m.ClassID, m.MethodID}; got != tt.in {
					t.Errorf("in: got %v, want %v", got, tt.in)
				}
			})
		}
	}
}

// However messages are divided into reads, and bodies into frames, the same messages arrive. The memory of a read is reused as soon as
// it is not shared.
func TestMessagesInPieces(t *testing.T) {
	props := amqp.Properties{MessageID: "id", Headers: table("k", "v")}
	props.Set(amqp.PropMessageID, amqp.PropHeaders)
	bodies := []string{"", "one", strings.Repeat("two ", 3000), "three"}
	var stream []byte
	for _, body := range bodies {
		stream = amqp.AppendMethod(stream, 1, &amqp.BasicPublish{RoutingKey: "q"})
		stream = amqp.AppendContentHeader(stream, 1, uint64(len(body)), props.Append(nil))
		stream = amqp.AppendBody(stream, 1, []byte(body), 4096)
		stream = append(stream, methodFrame(2, &amqp.BasicQos{})...) // a synchronous method of another channel in between
	}
	for _, size := range []int{1, 7, 100, 4096, 5000, len(stream)} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			p := newProbe(t).open().channel(1).channel(2)
			p.queue(1, "q")
			p.pieces(stream, size)
			for range bodies {
				expect[*amqp.BasicQosOK](p, 2)
			}
			for _, body := range bodies {
				if _, props, got := p.got(1, "q"); got != body || props.MessageID != "id" {
					t.Errorf("got %d bytes with %+v, want %d", len(got), props, len(body))
				}
			}
		})
	}
}

// pieces feeds a stream in pieces, through one block as a socket's reader would.
func (p *probe) pieces(stream []byte, size int) {
	p.t.Helper()
	k, waiting := block.New(256<<10), 0
	defer func() { k.Release() }()
	for len(stream) > 0 {
		n := min(size, len(stream))
		copy(k.Buf[waiting:], stream[:n])
		stream = stream[n:]
		waiting += n
		consumed := p.conn.Feed(p.now, k, k.Buf[:waiting])
		rest := bytes.Clone(k.Buf[consumed:waiting])
		waiting = len(rest)
		if k.Shared() {
			k.Release()
			k = block.New(256 << 10)
		} else {
			for i := range k.Buf[:consumed] {
				k.Buf[i] = 0xEE
			}
		}
		copy(k.Buf, rest)
	}
	p.feed(nil)
}

// Messages of several channels whose frames alternate do not mix.
func TestInterleavedChannels(t *testing.T) {
	p := newProbe(t).open().channel(1).channel(2)
	p.queue(1, "q")
	for _, f := range [][]byte{
		methodFrame(1, &amqp.BasicPublish{RoutingKey: "q"}), methodFrame(2, &amqp.BasicPublish{RoutingKey: "q"}),
		amqp.AppendContentHeader(nil, 2, 4, []byte{0, 0}), amqp.AppendContentHeader(nil, 1, 4, []byte{0, 0}),
		rawFrame(3, 1, "on"), rawFrame(3, 2, "t"), rawFrame(3, 1, ""), rawFrame(3, 2, "woo"), rawFrame(3, 1, "e!"),
	} {
		p.feed(f)
	}
	for _, want := range []string{"twoo", "one!"} {
		if _, _, got := p.got(1, "q"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A body takes memory as it arrives. The memory is counted, and released if the channel closes in the middle of the body.
func TestUnfinishedMessage(t *testing.T) {
	p := newProbe(t).open().channel(1)
	s := p.conn.srv
	before := s.PendingBytes()
	p.feed(methodFrame(1, &amqp.BasicPublish{RoutingKey: "q"}))
	p.feed(amqp.AppendContentHeader(nil, 1, 16<<20, []byte{0, 0}))
	if got := s.PendingBytes() - before; got > 4<<10 { // for its properties
		t.Errorf("announced: %d bytes count", got)
	}
	p.feed(rawFrame(3, 1, strings.Repeat("x", 10_000)))
	if got := s.PendingBytes() - before; got < 10_000 || got > 1<<16+4<<10 {
		t.Errorf("received 10000 bytes: %d count", got)
	}
	p.conn.Release(p.now)
	if got := s.PendingBytes(); got != 0 {
		t.Errorf("at the end: %d bytes count", got)
	}
}

// The properties of a message without its body retained everything that was read with them, 256 KiB in each of a connection's channels, which
// no alarm counted. They are now copied and counted.
func TestUnfinishedMessageHoldsItsProperties(t *testing.T) {
	p := newProbe(t).open().channel(1)
	s := p.conn.srv
	p.queue(1, "q")
	props := withHeaders("a header", strings.Repeat("h", 10_000))
	k := block.New(256 << 10)
	b := methodFrame(1, &amqp.BasicPublish{RoutingKey: "q"})
	b = amqp.AppendContentHeader(b, 1, 4, props.Append(nil))
	if n := p.conn.Feed(p.now, k, k.Buf[:copy(k.Buf, b)]); n != len(b) {
		t.Fatalf("%d of %d bytes were taken", n, len(b))
	}
	if k.Shared() {
		t.Error("all that was read is held")
	}
	if n := s.PendingBytes(); n < 10_000 || n > 1<<15 {
		t.Errorf("%d bytes count", n)
	}
	clear(k.Buf) // it is read into again
	k.Release()
	p.feed(rawFrame(3, 1, "body"))
	if n := s.PendingBytes(); n != 0 {
		t.Errorf("%d bytes count at the end", n)
	}
	p.send(1, &amqp.BasicGet{Queue: "q", NoAck: true})
	expect[*amqp.BasicGetOK](p, 1)
	if got, body := p.content(1); !reflect.DeepEqual(got.Headers, props.Headers) || body != "body" {
		t.Errorf("got %.300v, %q", got, body)
	}
}

// Without a plugin that reads it, the expiration property is not validated, and consumers get it.
func TestExpirationsThatNobodyReads(t *testing.T) {
	p := newProbe(t, withPicky(t)).open().channel(1)
	p.queue(1, "q")
	p.publish(1, published{key: "q", props: withExpiration("foobar")})
	if _, props, _ := p.got(1, "q"); props.Expiration != "foobar" {
		t.Errorf("got %q", props.Expiration)
	}
}

// A cached route is valid as long as nothing changes.
func TestRoutesFollowTheTopology(t *testing.T) {
	p := newProbe(t).open().channel(1).channel(2)
	do[*amqp.ExchangeDeclareOK](p, 1, &amqp.ExchangeDeclare{Exchange: "x", Type: "direct"})
	p.queue(1, "q")
	p.queue(1, "r")
	m := published{exchange: "x", key: "k", body: "x"}
	p.publish(1, m)
	do[*amqp.QueueBindOK](p, 2, &amqp.QueueBind{Queue: "q", Exchange: "x", RoutingKey: "k"})
	p.publish(1, m, m)
	p.holds(1, "q", 2)

	// In one read: the bindings change between two messages.
	b := m.frames(1)
	b = append(b, methodFrame(1, &amqp.QueueBind{Queue: "r", Exchange: "x", RoutingKey: "k", NoWait: true})...)
	b = append(b, m.frames(1)...)
	b = append(b, m.frames(2)...)
	b = append(b, methodFrame(2, &amqp.QueueUnbind{Queue: "q", Exchange: "x", RoutingKey: "k"})...)
	p.feed(append(b, m.frames(1)...))
	expect[*amqp.QueueUnbindOK](p, 2)
	p.holds(1, "q", 5)
	p.holds(1, "r", 3)

	do[*amqp.QueueDeleteOK](p, 1, &amqp.QueueDelete{Queue: "r"})
	m.mandatory = true
	p.publish(1, m)
	expect[*amqp.BasicReturn](p, 1)
	p.content(1)
	do[*amqp.ExchangeDeleteOK](p, 1, &amqp.ExchangeDelete{Exchange: "x"})
	p.publish(1, m)
	p.closed(1, 404, "NOT_FOUND - no exchange 'x' in vhost '/'")
}

// A headers exchange routes every message anew.
func TestRouteByHeaders(t *testing.T) {
	p := newProbe(t).open().channel(1)
	p.queue(1, "q")
	do[*amqp.QueueBindOK](p, 1, &amqp.QueueBind{Queue: "q", Exchange: "amq.headers", Arguments: table("x-match", "all", "k", "v")})
	yes := published{exchange: "amq.headers", body: "yes", props: withHeaders("k", "v")}
	no := published{exchange: "amq.headers", body: "no", props: withHeaders("k", "w")}
	p.publish(1, yes, no, yes, published{exchange: "amq.headers", body: "no"})
	p.holds(1, "q", 2)
}

func TestManyRoutesAndQueues(t *testing.T) {
	p := newProbe(t).open().channel(1)
	const queues = 3 * linearKeys
	var ms []published
	for round := range 3 {
		for i := range queues {
			name := fmt.Sprintf("q%d", i)
			if round == 0 {
				p.queue(1, name)
				do[*amqp.QueueBindOK](p, 1, &amqp.QueueBind{Queue: name, Exchange: "amq.fanout"})
			}
			ms = append(ms, published{key: name, body: strconv.Itoa(round)}, published{exchange: "amq.fanout", body: "all"})
		}
	}
	p.publish(1, ms...)
	for i := range queues {
		name := fmt.Sprintf("q%d", i)
		p.holds(1, name, 3+3*queues)
		for k := range 3 * queues {
			if _, _, got := p.got(1, name); k == i && got != "all" && got != "0" {
				t.Errorf("message %d of %s: got %s", k, name, got)
			}
		}
	}
	for i := range maxRoutes + 10 {
		p.publish(1, published{key: fmt.Sprint("nowhere", i)})
	}
	if got := len(p.conn.routes.entries); got > maxRoutes {
		t.Errorf("%d routes kept", got)
	}
}

// CC and BCC contain further keys; consumers do not see BCC.
func TestCopies(t *testing.T) {
	p := newProbe(t).open().channel(1)
	for _, name := range []string{"main", "copy", "blind"} {
		p.queue(1, name)
	}
	m := published{key: "main", body: "x", props: withHeaders(
		"a", true, "CC", amqp.Array{"copy", int32(1), "main", "nowhere"}, "BCC", amqp.Array{"blind"})}
	p.publish(1, m, m)
	for _, name := range []string{"main", "copy", "blind"} {
		p.holds(1, name, 2)
		for range 2 {
			got, props, _ := p.got(1, name)
			_, bcc := props.Headers.Lookup("BCC")
			_, cc := props.Headers.Lookup("CC")
			if got.RoutingKey != "main" || bcc || !cc {
				t.Errorf("%s: got key %s, headers %v", name, got.RoutingKey, props.Headers)
			}
		}
	}
	p.publish(1, published{key: "nowhere", props: withHeaders("CC", amqp.Array{"copy"}), mandatory: true})
	p.holds(1, "copy", 1)
}

func TestMandatory(t *testing.T) {
	p := newProbe(t).open().channel(1)
	do[*amqp.ConfirmSelectOK](p, 1, &amqp.ConfirmSelect{})
	p.publish(1, published{key: "nowhere", body: "back", mandatory: true, props: withHeaders("k", "v")}, published{key: "nowhere"})
	m := expect[*amqp.BasicReturn](p, 1)
	if m.ReplyCode != 312 || m.ReplyText != "NO_ROUTE" || m.Exchange != "" || m.RoutingKey != "nowhere" {
		t.Errorf("got %+v", m)
	}
	if props, body := p.content(1); body != "back" || len(props.Headers) != 1 {
		t.Errorf("got %q with %+v", body, props)
	}
	if m := expect[*amqp.BasicAck](p, 1); m.DeliveryTag != 2 || !m.Multiple {
		t.Errorf("got %+v", m)
	}
	p.silent()
}

// Cached properties of the last message are not used for a message with different ones.
func TestPropertiesOfTheLastMessage(t *testing.T) {
	p := newProbe(t).open().channel(1)
	p.queue(1, "q", "x-max-priority", int32(5))
	priority := func(n uint8) amqp.Properties {
		props := amqp.Properties{Priority: n}
		props.Set(amqp.PropPriority)
		return props
	}
	p.publish(1,
		published{key: "q", body: "0"}, published{key: "q", body: "1", props: priority(1)},
		published{key: "q", body: "1", props: priority(1)}, published{key: "q", body: "0"}, published{key: "q", body: "2", props: priority(2)})
	for _, want := range []string{"2", "1", "1", "0", "0"} {
		if _, _, got := p.got(1, "q"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	large := amqp.Properties{Headers: table("k", strings.Repeat("x", maxCachedProps))}
	large.Set(amqp.PropHeaders)
	p.publish(1, published{key: "q", body: "a", props: large}, published{key: "q", body: "b", props: large})
	p.holds(1, "q", 2)
	if got := cap(p.conn.channels.at(1).publisher.props.raw); got > maxCachedProps {
		t.Errorf("%d bytes of properties kept", got)
	}
}

// ownUsers gives a server users of its own.
func ownUsers(t *testing.T) func(*Options) {
	t.Helper()
	users := auth.New(auth.Options{Hashing: auth.SHA256}) // not 600,000 rounds for each wrong password
	must(t, users.CreateDefaults())
	return func(o *Options) { o.Users = users }
}

func (p *probe) grant(permissions auth.Permissions) {
	p.t.Helper()
	if _, err := p.conn.srv.Users.SetPermissions(auth.Grant{User: auth.Guest, VHost: "/", Permissions: permissions}); err != nil {
		p.t.Fatal(err)
	}
}

// If the permission is revoked, the next message is refused. A permission for another exchange does not help.
func TestWritePermission(t *testing.T) {
	p := newProbe(t, ownUsers(t)).open().channel(1)
	p.queue(1, "q")
	m := published{exchange: "amq.fanout", key: "k"}
	p.publish(1, m, m)
	grant := func(write string) {
		t.Helper()
		p.grant(auth.Permissions{Configure: ".*", Write: write, Read: ".*"})
	}
	const refused = "ACCESS_REFUSED - write access to exchange 'amq.fanout' in vhost '/' refused for user 'guest'"
	grant(`^amq\.default$`)
	p.publish(1, m)
	p.closed(1, 403, refused)
	p.channel(1).publish(1, published{key: "q", body: "x"})
	p.holds(1, "q", 1)
	p.publish(1, m)
	p.closed(1, 403, refused)
	grant("fanout")
	p.channel(1).publish(1, m)
	p.silent()
	p.publish(1, published{key: "q"})
	p.closed(1, 403, "ACCESS_REFUSED - write access to exchange 'amq.default' in vhost '/' refused for user 'guest'")
}

// One read of empty messages to a fanout exchange with many queues took a gigabyte at once, before an alarm could stop the publisher.
func TestCopiesOfOneRead(t *testing.T) {
	const queues, messages = 100, 2 * maxCopies / 100
	p := newProbe(t).open().channel(1)
	for i := range queues {
		p.queue(1, strconv.Itoa(i))
		do[*amqp.QueueBindOK](p, 1, &amqp.QueueBind{Queue: strconv.Itoa(i), Exchange: "amq.fanout"})
	}
	var b []byte
	for range messages {
		b = amqp.AppendMethod(b, 1, &amqp.BasicPublish{Exchange: "amq.fanout"})
		b = amqp.AppendContentHeader(b, 1, 0, []byte{0, 0})
	}
	p.feed(b)
	if left := len(p.in); left < len(b)/3 || !p.conn.Unfed() {
		t.Errorf("of %d bytes %d are left, unfed: %t", len(b), left, p.conn.Unfed())
	}
	for range 3 {
		p.feed(nil)
	}
	if p.conn.Unfed() || len(p.in) > 0 {
		t.Errorf("%d bytes are left", len(p.in))
	}
	p.holds(1, "7", messages)
}
