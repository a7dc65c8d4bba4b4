package session

import (
	"bytes"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/death"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// parsedProps holds the parts of a message's properties that the broker needs. It is cached for the next message, because most publishers
// send the same properties again and again.
type parsedProps struct {
	known bool
	once  bool   // the fields below are invalid for later messages, even with the same properties
	raw   []byte // as received, if known

	foreign bool // the user-id is another user's, which requires a tag

	index amqp.PropIndex // of the properties as stored

	stored         []byte // as stored, if that differs from as received; never modified
	cc, bcc        []string
	expiration     hook.Limit
	wait           queue.Wait
	priority       uint8
	flags          queue.Flags
	parentSampling telemetry.ParentSampling // set while tracing is on
}

// maxCachedProps is the largest size of properties that a channel caches, bytes.
const maxCachedProps = 4 << 10

// checkProps checks properties and returns them as they are to be stored: unchanged, or a changed copy.
func (ch *channel) checkProps(props []byte) ([]byte, error) {
	p := &ch.props
	if !p.known || !bytes.Equal(p.raw, props) || p.foreign && !ch.impersonates() {
		p.known = false
		if err := ch.parseProps(props); err != nil {
			return nil, err
		}
		if p.known = len(props) <= maxCachedProps && !p.once; p.known {
			p.raw = append(p.raw[:0], props...)
		}
	}
	if p.stored != nil {
		return p.stored, nil
	}
	return props, nil
}

func (ch *channel) parseProps(props []byte) error {
	x, err := amqp.ScanProps(props)
	if err != nil {
		return err
	}
	if err := ch.checkReplyTo(x.ReplyTo(props)); err != nil {
		return err
	}
	if err := ch.checkUserID(x.UserID(props)); err != nil {
		return err
	}
	p := &ch.props
	if p.expiration, err = ch.readExpiration(x.Expiration(props)); err != nil {
		return err
	}
	p.flags = 0
	if x.Persistent(props) {
		p.flags |= queue.Persistent
	}
	var hasPriority bool
	if p.priority, hasPriority = x.Priority(props); hasPriority {
		p.flags |= queue.HasPriority
	}
	p.cc, p.bcc, p.stored, p.wait, p.once = nil, nil, nil, 0, false
	if x.Has(amqp.PropHeaders) {
		p.flags |= queue.HasHeaders
		if err := ch.readHeaders(x.Headers(props)); err != nil {
			return err
		}
	}
	p.index = x
	if s := ch.conn.srv.spans; s != nil {
		p.parentSampling = s.ParentSamplingOf(x.Headers(props))
	}
	ch.rewriteProps(props)
	return nil
}

// checkReplyTo refuses a request for a direct reply on a channel that consumes no replies.
func (ch *channel) checkReplyTo(to []byte, _ bool) error {
	if string(to) == replyTo && ch.reply == nil {
		return precondition("fast reply consumer does not exist")
	}
	return nil
}

// impersonates reports whether the user may now publish with another user's user-id: the required tag can be removed at any time.
func (ch *channel) impersonates() bool {
	c := ch.conn
	return c.srv.Users.HasTag(c.user.Name, "impersonator")
}

// checkUserID refuses a user-id that is not the user's own [RabbitMQ: validated-user-id.html].
func (ch *channel) checkUserID(id []byte, given bool) error {
	c := ch.conn
	ch.props.foreign = given && string(id) != c.user.Name
	if !ch.props.foreign || ch.impersonates() {
		return nil
	}
	return precondition("user_id property set to '%s' but authenticated user was '%s'", strings.ToValidUTF8(string(id), "?"), c.user.Name)
}

// rewriteProps changes properties that are not stored as received: it removes the BCC header, and replaces the reply-to of a
// request for a direct reply by the name of the channel's reply queue.
func (ch *channel) rewriteProps(props []byte) {
	p := &ch.props
	to, _ := p.index.ReplyTo(props)
	wantsReply := string(to) == replyTo
	if p.bcc != nil {
		props = p.store(death.StripBCC(nil, props, p.index))
	}
	if wantsReply {
		p.store(amqp.RewriteProps(nil, props, p.index, amqp.PropEdit{ReplyTo: ch.reply.Config().Name}))
	}
}

func (p *parsedProps) store(props []byte) []byte {
	p.stored = props
	p.index, _ = amqp.ScanProps(props) // valid, because the broker made them
	return props
}

// readExpiration reads the expiration property, if there is one.
func (ch *channel) readExpiration(raw []byte, given bool) (hook.Limit, error) {
	if !given {
		return 0, nil
	}
	limit, err := ch.conn.vhost.CheckExpiration(raw)
	if err != nil {
		return 0, precondition("invalid expiration '%s': %v", strings.ToValidUTF8(string(raw), "?"), err)
	}
	return limit, nil
}
