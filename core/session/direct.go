package session

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/block"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// Direct is a connection with one channel from inside the broker, for a user that logged in elsewhere, such as to the management API. The
// broker treats it like any client. It belongs to one goroutine.
type Direct struct {
	conn  *Conn
	clock clock.Clock
	tick  chan struct{} // capacity 1; has a value when Tick must be called
	in    []byte        // from the connection, not parsed yet
}

const (
	directFrameMax = 1 << 30 // so large that every body is one frame
	directChannel  = 1       // the only channel
)

// Direct opens a connection for a user to a vhost. The caller has checked the user's access, and must close the connection.
func (s *Server) Direct(user auth.User, v *vhost.VHost, clock clock.Clock) *Direct {
	d := &Direct{clock: clock, tick: make(chan struct{}, 1)}
	c := s.Accept(Peer{Address: "direct", Local: "direct"}, func() { signal(d.tick) })
	c.user = user
	c.use(v)
	c.frameMax, c.channelMax = directFrameMax, directChannel
	c.caps = capabilities{cancelNotify: true, nack: true}
	c.addChannel(newChannel(c, directChannel))
	d.conn = c
	return d
}

// Close gives back everything that the connection holds, such as unsettled messages.
func (d *Direct) Close() { d.conn.Release(d.clock()) }

// Send sends a method that has no content. Its short strings must not be longer than 255 bytes.
func (d *Direct) Send(m amqp.Method) { d.feed(amqp.AppendMethod(nil, directChannel, m)) }

// Call sends a method and waits for the answer.
func (d *Direct) Call(ctx context.Context, m amqp.Method) (Reply, error) {
	d.Send(m)
	return d.Next(ctx)
}

// Publish publishes a message.
func (d *Direct) Publish(m *amqp.BasicPublish, props, body []byte) {
	b := amqp.AppendMethod(nil, directChannel, m)
	b = amqp.AppendContentHeader(b, directChannel, uint64(len(body)), props)
	d.feed(amqp.AppendBody(b, directChannel, body, directFrameMax))
}

func (d *Direct) feed(b []byte) {
	k := block.New(len(b))
	defer k.Release()
	d.conn.Feed(d.clock(), k, k.Buf[:copy(k.Buf, b)])
	d.read()
}

// read appends the pending output of the connection to in.
func (d *Direct) read() {
	for bs, _, _ := d.conn.out.next(); len(bs) > 0; bs, _, _ = d.conn.out.next() {
		for _, b := range bs {
			d.in = append(d.in, b...)
		}
	}
}

// Reply is a method from the broker, with its content.
type Reply struct {
	Method      amqp.Method
	Props, Body []byte
}

// Next waits for the next method from the broker. If the broker closes the channel or the connection, the error is an
// [*amqp.Error].
func (d *Direct) Next(ctx context.Context) (Reply, error) {
	for d.read(); len(d.in) == 0; d.read() {
		select {
		case <-d.conn.out.wake:
		case <-d.tick:
			d.conn.Tick(d.clock())
		case <-ctx.Done():
			return Reply{}, ctx.Err()
		}
	}
	return d.reply()
}

// reply parses the next method and its content, which follows in one piece.
func (d *Direct) reply() (r Reply, err error) {
	if r.Method, err = amqp.ParseMethod(d.frame().Payload); err != nil {
		return Reply{}, fmt.Errorf("from the broker itself: %w", err)
	}
	switch m := r.Method.(type) {
	case *amqp.ChannelClose:
		return Reply{}, closedFor(m.ReplyCode, m.ReplyText)
	case *amqp.ConnectionClose:
		return Reply{}, d.conn.closedFor
	case *amqp.BasicGetOK, *amqp.BasicReturn:
		h, err := amqp.ParseContentHeader(d.frame().Payload)
		if err != nil {
			return Reply{}, fmt.Errorf("from the broker itself: %w", err)
		}
		r.Props = h.Props
		if h.BodySize > 0 {
			r.Body = d.frame().Payload
		}
	}
	return r, nil
}

// frame returns the next frame of in, which contains whole frames only.
func (d *Direct) frame() amqp.Frame {
	f, n, err := amqp.NextFrame(d.in, directFrameMax)
	if err != nil || n == 0 {
		panic(fmt.Sprintf("session: a frame of our own: %d bytes, %v", len(d.in), err))
	}
	d.in = d.in[n:]
	return f
}

// closedFor returns the error for a reply code and text.
func closedFor(code uint16, text string) error {
	e := amqp.Errorf(code, "")
	if rest, ok := strings.CutPrefix(text, e.Name+" - "); ok {
		e.Text = rest
	}
	return e
}

// replyTo is a queue name from which every channel can consume the replies to its requests without declaring a queue. Requests
// name it as their reply-to [RabbitMQ: direct-reply-to.html].
const replyTo = "amq.rabbitmq.reply-to"

// replies holds, by name, the reply queue of every channel that has one. Reply queues are in no vhost's table: only receivers of a request
// know the name. A reply queue ends with its consumer. Any goroutine may use replies.
type replies struct {
	broker *queue.Broker
	clock  clock.Clock
	chain  *chain.Chain // without plugins

	mu     sync.RWMutex // guards queues
	queues map[string]*queue.Mailbox
}

func newReplies(b *queue.Broker) *replies {
	none, _ := chain.New(nil, chain.Options{}) // cannot fail without plugins
	return &replies{broker: b, clock: clock.New(), chain: none, queues: map[string]*queue.Mailbox{}}
}

// replyName returns the name of a channel's reply queue in RabbitMQ's form, which some clients parse: a token for the channel, a dot,
// and a key that cannot be guessed.
func replyName(conn uint64, channel uint16) string {
	var key [16]byte
	_, _ = rand.Read(key[:]) // never fails
	token := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint64(nil, conn), channel)
	return replyTo + "." + base64.StdEncoding.EncodeToString(token) + "." + base64.StdEncoding.EncodeToString(key[:])
}

func isReplyName(name string) bool { return strings.HasPrefix(name, replyTo+".") }

// isReply reports whether a message is a direct reply.
func isReply(o *queue.RoutingInfo) bool { return o.Exchange == "" && isReplyName(o.Key) }

// add makes a reply queue.
func (r *replies) add(vhost, name string) *queue.Mailbox {
	cfg := &queue.Config{Name: name, Profile: &queue.Profile{
		VHost: vhost, Kind: queue.Classic, DeliveryLimit: -1, Settings: func(string) (any, bool) { return nil, false },
	}}
	m := r.broker.NewMailbox(cfg, r.chain, noopHost{}, r.clock)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queues[name] = m
	return m
}

func (r *replies) remove(m *queue.Mailbox) {
	r.mu.Lock()
	delete(r.queues, m.Config().Name)
	r.mu.Unlock()
	_ = m.Do(func(q *queue.Queue, _ hook.Instant) { _, _ = q.Delete(false, false) }) // cannot be refused
}

// find returns a reply queue; nil = the vhost has none by that name.
func (r *replies) find(vhost, name string) *queue.Mailbox {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if m := r.queues[name]; m != nil && m.Config().VHost == vhost {
		return m
	}
	return nil
}

// noopHost is the host of reply queues, which have no plugins, dead-letter nothing and are not deleted automatically.
type noopHost struct{}

var _ queue.Host = noopHost{}

func (noopHost) DeadLetter(*queue.Config, hook.Instant, []queue.DeadLetter, queue.Tracking) {}

func (noopHost) Removed(*queue.Config, hook.Instant, []telemetry.Removal) {}

func (noopHost) Refused(*queue.Config, int) {}

func (noopHost) Decided(*queue.Config, hook.Instant, *telemetry.Message, *guest.Decision) {}

func (noopHost) Deleted(*queue.Mailbox, queue.Deletion) {}

// replyQueue is where a channel's direct replies arrive, while it consumes any.
type replyQueue struct {
	all     *replies
	mailbox *queue.Mailbox // nil: the channel consumes no replies
	changes uint64         // how often mailbox has changed
}

// queue returns the reply queue; nil = there is none.
func (r *replyQueue) queue() *queue.Mailbox { return r.mailbox }

// version changes whenever the result of queue does.
func (r *replyQueue) version() uint64 { return r.changes }

// open makes the reply queue.
func (r *replyQueue) open(vhost string, conn uint64, channel uint16) {
	r.mailbox = r.all.add(vhost, replyName(conn, channel))
	r.changes++
}

// close deletes the reply queue, if there is one.
func (r *replyQueue) close() {
	if r.mailbox != nil {
		r.all.remove(r.mailbox)
		r.mailbox = nil
		r.changes++
	}
}
