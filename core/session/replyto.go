package session

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"sync"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

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
