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

// parsedProps is what the broker needs of a message's properties. They are kept for the next message: most publishers send the
// same properties again and again.
type parsedProps struct {
	known bool
	raw   []byte         // the properties as they were received, if known
	index amqp.PropIndex // of the properties as they are stored

	stored         []byte // the properties as they are stored, if not as received; never written to again
	cc, bcc        []string
	expiration     hook.Limit
	priority       uint8
	flags          queue.Flags
	parentSampling telemetry.ParentSampling // set while traces are on
}

// maxCachedProps bounds what is remembered of a channel's properties.
const maxCachedProps = 4 << 10

// examine checks properties and returns them as they are to be stored: as they are, or a changed copy.
func (ch *channel) examine(props []byte) ([]byte, error) {
	f := &ch.props
	if !f.known || !bytes.Equal(f.raw, props) {
		f.known = false
		if err := ch.learn(props); err != nil {
			return nil, err
		}
		if f.known = len(props) <= maxCachedProps; f.known {
			f.raw = append(f.raw[:0], props...)
		}
	}
	if f.stored != nil {
		return f.stored, nil
	}
	return props, nil
}

// store takes properties that the broker made to be stored, and returns them.
func (f *parsedProps) store(props []byte) []byte {
	f.stored = props
	f.index, _ = amqp.ScanProps(props) // what the broker made cannot be wrong
	return props
}

func (ch *channel) learn(props []byte) error {
	x, err := amqp.ScanProps(props)
	if err != nil {
		return err
	}
	if err := ch.checkUserID(x.UserID(props)); err != nil {
		return err
	}
	f := &ch.props
	if f.expiration, err = parseExpiration(x.Expiration(props)); err != nil {
		return err
	}
	f.flags = 0
	if x.Persistent(props) {
		f.flags |= queue.Persistent
	}
	var hasPriority bool
	if f.priority, hasPriority = x.Priority(props); hasPriority {
		f.flags |= queue.HasPriority
	}
	f.cc, f.bcc, f.stored = nil, nil, nil
	if x.Has(amqp.PropHeaders) {
		f.flags |= queue.HasHeaders
		if f.cc, f.bcc, err = death.SenderSelected(x.Headers(props)); err != nil {
			return err
		}
	}
	f.index = x
	if s := ch.conn.srv.spans; s != nil {
		f.parentSampling = s.ParentSamplingOf(x.Headers(props))
	}
	return ch.rewrite(props)
}

// checkUserID refuses a user-id that is not the user's own [RabbitMQ: validated-user-id.html].
func (ch *channel) checkUserID(id []byte, given bool) error {
	c := ch.conn
	if !given || string(id) == c.user.Name || c.srv.Users.HasTag(c.user.Name, "impersonator") {
		return nil
	}
	return precondition("user_id property set to '%s' but authenticated user was '%s'", strings.ToValidUTF8(string(id), "?"), c.user.Name)
}

// rewrite changes the properties that are not stored as the publisher sent them: the header BCC is for nobody's eyes, and
// who wants replies directly is given an address.
func (ch *channel) rewrite(props []byte) error {
	f := &ch.props
	to, _ := f.index.ReplyTo(props)
	wantsReply := string(to) == replyTo
	if f.bcc != nil {
		props = f.store(death.StripBCC(nil, props, f.index))
	}
	if !wantsReply {
		return nil
	}
	if ch.reply == nil {
		return precondition("fast reply consumer does not exist")
	}
	f.store(amqp.RewriteProps(nil, props, f.index, amqp.PropEdit{ReplyTo: ch.reply.name}))
	return nil
}
