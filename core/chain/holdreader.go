package chain

import (
	"errors"
	"fmt"
	"slices"

	"github.com/curfewmq/curfew/sdk/hook"
)

// MaxHoldHeaders is the most headers that a [hook.HoldReader] can read.
const MaxHoldHeaders = 8

// addHoldReader registers p as the reader of the holds that publishers ask for, if it is one.
func (c *Chain) addHoldReader(p *pluginEntry) error {
	r, ok := p.plugin.(hook.HoldReader)
	if !ok {
		return nil
	}
	names := r.HoldHeaders()
	switch {
	case len(names) == 0:
		return nil
	case len(names) > MaxHoldHeaders:
		return fmt.Errorf("plugins.%s: reads holds from %d headers, at most %d", p.name, len(names), MaxHoldHeaders)
	case c.holdReader != nil:
		return fmt.Errorf("plugins.%s: %s already reads the holds of messages; take one of them out of plugins.chain", p.name, c.holdReader.name)
	}
	for i, name := range names {
		if name == "" || name == "CC" || name == "BCC" || slices.Contains(names[:i], name) {
			return fmt.Errorf("plugins.%s: reads holds from the header %q, which is empty, already in use or named twice", p.name, name)
		}
	}
	c.holdReader, c.holdHeaders = p, names
	return nil
}

// HoldHeaders returns the headers from which holds are read; none if no plugin reads any. The slice belongs to the chain.
func (c *Chain) HoldHeaders() []string { return c.holdHeaders }

// ReadHold returns how long to hold a message, according to the values of its HoldHeaders. The text of the error is the reason in the
// client's PRECONDITION_FAILED.
func (c *Chain) ReadHold(now hook.Instant, values []any) (hook.Wait, error) {
	wait, err, ok := c.holdReader.readHold(now, values)
	switch {
	case !ok:
		return hook.Wait{}, errors.New("the plugin " + c.holdReader.name + " failed on the headers of the message")
	case err != nil:
		return hook.Wait{}, err
	}
	return wait, nil
}

// readHold asks the plugin; ok is false if it panics.
func (p *pluginEntry) readHold(now hook.Instant, values []any) (wait hook.Wait, err error, ok bool) { //nolint:revive // the error is the client's, not ours
	defer p.contain(onReadHold)
	wait, wrong := p.plugin.(hook.HoldReader).ReadHold(now, values) //nolint:forcetypeassert // addHoldReader asked
	if wrong != nil {
		err = errors.New(wrong.Error()) // made while panics are contained: the plugin's error may be a nil pointer
	}
	return wait, err, true
}

// addExpiration registers p as the reader of the expiration property, if it is one.
func (c *Chain) addExpiration(p *pluginEntry) error {
	if _, ok := p.plugin.(hook.ExpirationChecker); !ok {
		return nil
	}
	if c.expiration != nil {
		return fmt.Errorf("plugins.%s: %s already reads the expiration of messages; take one of them out of plugins.chain", p.name, c.expiration.name)
	}
	c.expiration = p
	return nil
}

// CheckExpiration reads the expiration property of a message. It returns no limit if no plugin reads the property. The text of
// the error is the reason in the reply: see [hook.ExpirationChecker].
func (c *Chain) CheckExpiration(raw []byte) (hook.Limit, error) {
	if c.expiration == nil {
		return 0, nil
	}
	return c.expiration.checkExpiration(raw)
}

// checkExpiration refuses the property if the plugin panics.
func (p *pluginEntry) checkExpiration(raw []byte) (hook.Limit, error) {
	limit, err, ok := p.askExpiration(raw)
	if !ok {
		return 0, errors.New("the plugin " + p.name + " failed on it")
	}
	return limit, err
}

// askExpiration asks the plugin; ok is false if it panics.
func (p *pluginEntry) askExpiration(raw []byte) (limit hook.Limit, err error, ok bool) { //nolint:revive // the error is the client's, not ours
	defer p.contain(onExpiration)
	limit, err = p.plugin.(hook.ExpirationChecker).CheckExpiration(raw) //nolint:forcetypeassert // addExpiration asked
	return limit, err, true
}
