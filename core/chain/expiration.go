package chain

import (
	"errors"
	"fmt"

	"github.com/curfewmq/curfew/sdk/hook"
)

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
