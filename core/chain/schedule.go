package chain

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Schedule is a plugin's schedule of one exchange. It contains panics. Any goroutine may use it.
type Schedule struct {
	current atomic.Pointer[hook.Schedule] // nil if the plugin failed to make one
	plugin  *pluginEntry                  // nil means that no plugin offers the exchange's type
	inner   string
}

// NewSchedule returns the schedule of an exchange whose type has one, or had one before its
// plugin was removed from the chain. If it returns an error, the schedule is broken. The
// text of the error is for the client that declares the exchange.
func (c *Chain) NewSchedule(x *hook.Exchange) (*Schedule, error) {
	t := c.ExchangeType(x.Type)
	if t == nil || t.Schedule == nil {
		return &Schedule{}, fmt.Errorf("no plugin of the chain offers the exchange type '%s'", x.Type)
	}
	s := &Schedule{plugin: t.plugin}
	made, ok := t.plugin.newSchedule(t.Schedule, x)
	if !ok || made.Plan == nil {
		return s, fmt.Errorf("the plugin '%s' failed to create the exchange", t.plugin.name)
	}
	if s.inner = made.Inner; !slices.Contains(c.innerTypes, made.Inner) {
		t.plugin.invalid[onSchedule].Add(1)
		return s, fmt.Errorf("the plugin '%s' routes messages of the exchange by the type '%s', expected one of %s",
			t.plugin.name, made.Inner, strings.Join(c.innerTypes, ", "))
	}
	s.current.Store(&made)
	return s, nil
}

func (p *pluginEntry) newSchedule(create func(*hook.Exchange) hook.Schedule, x *hook.Exchange) (_ hook.Schedule, ok bool) {
	defer p.contain(onSchedule)
	return create(x), true
}

// Renew asks the plugin for a new schedule, because the policies of the exchange have changed. After an error the old schedule stays.
func (s *Schedule) Renew(c *Chain, x *hook.Exchange) error {
	if s.Broken() {
		return errors.New("the exchange holds no messages until the broker is started again")
	}
	renewed, err := c.NewSchedule(x)
	if err != nil {
		return err
	}
	if renewed.inner != s.inner {
		s.plugin.invalid[onSchedule].Add(1)
		return fmt.Errorf("the plugin '%s' changed the type that routes its messages from '%s' to '%s'", s.plugin.name, s.inner, renewed.inner)
	}
	s.current.Store(renewed.current.Load())
	return nil
}

// Broken reports whether there is no working plugin: messages are neither accepted nor released.
func (s *Schedule) Broken() bool { return s.current.Load() == nil }

// Plugin returns the plugin's name; "" if no plugin offers the type.
func (s *Schedule) Plugin() string {
	if s.plugin == nil {
		return ""
	}
	return s.plugin.name
}

// Inner returns the type of exchange that routes released messages; "" if it is unknown.
func (s *Schedule) Inner() string { return s.inner }

// Plan asks the plugin how to handle a message. ok is false after a panic. Even with an error, p is filled in, for messages that were
// accepted before. The schedule must not be broken.
func (s *Schedule) Plan(m *hook.Publishing, p *hook.Plan) (err error, ok bool) { //nolint:revive // the error is the client's, not ours
	defer s.plugin.contain(onPlan)
	*p = hook.Plan{}
	if wrong := s.current.Load().Plan(m, p); wrong != nil {
		err = errors.New(wrong.Error()) // made while panics are contained: the plugin's error may be a nil pointer
	}
	if p.Cancel && len(p.ID) == 0 {
		if err == nil {
			s.plugin.invalid[onPlan].Add(1)
		}
		p.Cancel = false
	}
	return err, true
}

// Release asks the plugin about a message whose time has come. If the plugin panics, the message leaves.
func (s *Schedule) Release(m *hook.Publishing, r *hook.Release) {
	released := s.current.Load().Released
	if released == nil {
		return
	}
	asked := *r
	if !s.released(released, m, r) {
		*r = asked
	}
	r.Due = asked.Due
}

func (s *Schedule) released(ask func(*hook.Publishing, *hook.Release), m *hook.Publishing, r *hook.Release) (returned bool) {
	defer s.plugin.contain(onReleased)
	ask(m, r)
	return true
}

// AsksReleased reports whether the plugin wants to be asked about due messages.
func (s *Schedule) AsksReleased() bool {
	c := s.current.Load()
	return c != nil && c.Released != nil
}

// Negates names the header whose number is negated in released messages; "" means none.
func (s *Schedule) Negates() string {
	c := s.current.Load()
	if c == nil {
		return ""
	}
	return c.Negates
}

// MaxHeld limits the messages held.
func (s *Schedule) MaxHeld() hook.Limit {
	c := s.current.Load()
	if c == nil {
		return 0
	}
	return c.MaxHeld
}

// chooseExchangeKeys adds the keys of policies for exchanges, once all arguments of queues are known.
func (c *Chain) chooseExchangeKeys(reserved []string) error {
	c.keyOwners = map[string]*pluginEntry{}
	var errs []error
	for _, f := range c.filterers {
		errs = append(errs, c.addExchangeKeys(f.plugin, f.arguments, reserved))
	}
	for _, t := range c.types {
		errs = append(errs, c.addExchangeKeys(t.plugin, t.Arguments, reserved))
	}
	return errors.Join(errs...)
}
