package session

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"sync"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// replyTo is the queue that exists for everybody: who consumes from it gets the replies to requests that name it as their
// reply-to, without a queue of one's own [RabbitMQ: direct-reply-to.html].
const replyTo = "amq.rabbitmq.reply-to"

// replyQueue is where the replies to one channel arrive: a queue that is in no vhost's table, under a name that only who
// was sent a request knows. It ends with its consumer.
type replyQueue struct {
	name    string
	mailbox *queue.Mailbox
}

// replies are the reply queues of all channels, by name. Any goroutine may use it.
type replies struct {
	clock clock.Clock
	chain *chain.Chain // without plugins

	mu     sync.RWMutex // guards queues
	queues map[string]*replyQueue
}

func newReplies() *replies {
	none, _ := chain.New(nil, chain.Options{}) // nothing can be wrong with no plugins
	return &replies{clock: clock.New(), chain: none, queues: map[string]*replyQueue{}}
}

// replyName is the name of a channel's reply queue in RabbitMQ's form, which some clients take apart: whose it is, a dot, and a key
// that nobody can guess.
func replyName(conn uint64, channel uint16) string {
	var key [16]byte
	_, _ = rand.Read(key[:]) // never fails
	token := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint64(nil, conn), channel)
	return replyTo + "." + base64.StdEncoding.EncodeToString(token) + "." + base64.StdEncoding.EncodeToString(key[:])
}

// add makes a reply queue.
func (r *replies) add(vhost, name string) *replyQueue {
	cfg := &queue.Config{Name: name, Profile: &queue.Profile{
		VHost: vhost, Kind: queue.Classic, DeliveryLimit: -1, Settings: func(string) (any, bool) { return nil, false },
	}}
	q := &replyQueue{name: name, mailbox: queue.NewMailbox(cfg, r.chain, noopHost{}, r.clock)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queues[name] = q
	return q
}

func (r *replies) remove(q *replyQueue) {
	r.mu.Lock()
	delete(r.queues, q.name)
	r.mu.Unlock()
	// There is nothing that could refuse it.
	_ = q.mailbox.Do(func(q *queue.Queue, _ hook.Instant) { _, _ = q.Delete(false, false) })
}

// find returns a reply queue, nil if there is none by that name in the vhost.
func (r *replies) find(vhost, name string) *replyQueue {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if q := r.queues[name]; q != nil && q.mailbox.Config().VHost == vhost {
		return q
	}
	return nil
}

// route appends where a reply goes.
func (r *replies) route(vhost, name string, dst []*queue.Mailbox) []*queue.Mailbox {
	if q := r.find(vhost, name); q != nil {
		return append(dst, q.mailbox)
	}
	return dst
}

// isReply says whether a message is a direct reply.
func isReply(o *queue.RoutingInfo) bool {
	return o.Exchange == "" && strings.HasPrefix(o.Key, replyTo+".")
}

// noopHost is the host of reply queues, which have no plugins: nothing is dead-lettered, and they do not end by themselves.
type noopHost struct{}

var _ queue.Host = noopHost{}

func (noopHost) DeadLetter(*queue.Config, hook.Instant, []queue.DeadLetter, queue.Tracking) {}

func (noopHost) Removed(*queue.Config, hook.Instant, []telemetry.Removal) {}

func (noopHost) Refused(*queue.Config, int) {}

func (noopHost) Decided(*queue.Config, hook.Instant, *telemetry.Message, *hook.Decision) {}

func (noopHost) Deleted(*queue.Mailbox, queue.Deletion) {}

// consumeReplies makes the channel one that gets replies.
func (ch *channel) consumeReplies(m *amqp.BasicConsume) error {
	if ch.reply != nil {
		return precondition("reply consumer already set")
	}
	if err := ch.checkConsumerTag(m); err != nil {
		return err
	}
	if !m.NoAck {
		return precondition("reply consumer cannot acknowledge")
	}
	ch.reply = ch.conn.srv.replies.add(ch.conn.vhost.Name(), replyName(ch.conn.id, ch.id))
	ch.props.known = false
	s := ch.newConsumer(m, ch.reply.mailbox)
	s.exempt = true
	return s.join()
}

// dropReplies ends the channel's reply queue.
func (ch *channel) dropReplies() {
	if ch.reply == nil {
		return
	}
	ch.conn.srv.replies.remove(ch.reply)
	ch.reply = nil
	ch.props.known = false
}

// declareReplies answers who asks whether direct replies are possible, or whether somebody still waits for one.
func (ch *channel) declareReplies(m *amqp.QueueDeclare) error {
	v := ch.conn.vhost
	if m.Queue != replyTo && ch.conn.srv.replies.find(v.Name(), m.Queue) == nil {
		return v.NoQueue(m.Queue)
	}
	return ch.declareOK(m.NoWait, m.Queue, 0, 1)
}
