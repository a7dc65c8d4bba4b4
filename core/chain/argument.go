package chain

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/sdk/hook"
)

// queueTypes are the types that a plugin's argument or key can be limited to.
var queueTypes = []string{"classic", "quorum", "stream"}

// addArguments adds the arguments of p. Their names must not belong to another plugin or be reserved.
func (c *Chain) addArguments(p *pluginEntry, reserved []string) error {
	var errs []error
	for _, a := range p.plugin.Arguments() {
		owner := c.argumentOwners[a.Name]
		if a.Name == strategyArgument || slices.Contains(reserved, a.Name) {
			owner = "the broker"
		}
		if owner != "" {
			errs = append(errs, fmt.Errorf("plugins.%s: the argument %s already has a meaning, for %s", p.name, a.Name, owner))
			continue
		}
		if err := checkDeclared(&a); err != nil {
			errs = append(errs, fmt.Errorf("plugins.%s: the argument %q %w", p.name, a.Name, err))
			continue
		}
		c.arguments = append(c.arguments, p.contained(a))
		c.argumentOwners[a.Name] = "plugins." + p.name
	}
	return errors.Join(errs...)
}

// checkDeclared refuses invalid declarations of an argument.
func checkDeclared(a *hook.Argument) error {
	if a.Name == "" {
		return errors.New("has no name")
	}
	if err := checkTypes(a.QueueTypes); err != nil {
		return err
	}
	k := a.Policy
	if k == nil {
		return nil
	}
	if name, ok := strings.CutPrefix(a.Name, "x-"); !ok || name == "" {
		return errors.New("is a key of policies: its name must be x- and the key")
	}
	rules := []hook.Merge{k.Merge, k.Argument}
	if k.QuorumArgument != nil {
		rules = append(rules, *k.QuorumArgument)
	}
	for _, m := range rules {
		if m > hook.TakeLowerLimit {
			return fmt.Errorf("is a key of policies that merges by rule %d, expected 0 to %d", m, hook.TakeLowerLimit)
		}
	}
	return checkTypes(k.QueueTypes)
}

func checkTypes(types []string) error {
	for _, t := range types {
		if !slices.Contains(queueTypes, t) {
			return fmt.Errorf("is for queues of type %q, expected one of %s", t, strings.Join(queueTypes, ", "))
		}
	}
	return nil
}

// contained returns a with checks that never panic: a panic refuses the value. Check is never nil. The errors are new ones, made
// while panics are still contained: a plugin's error may be a nil pointer, or panic when its text is read.
func (p *pluginEntry) contained(a hook.Argument) hook.Argument {
	check, namesExchange := a.Check, a.NamesExchange
	a.Check = func(v any, all hook.Args) (err error) {
		defer p.contain(onCheck)
		err = &hook.ArgError{Term: "the plugin " + p.name + " failed on this value"}
		if check != nil {
			if wrong := check(v, all); wrong != nil {
				return argumentError(wrong)
			}
		}
		if _, ok := v.(string); namesExchange && !ok {
			return &hook.ArgTypeError{Type: hook.TypeName(v)}
		}
		return nil
	}
	if a.Policy != nil {
		a.Policy = p.containedKey(a.Name, *a.Policy)
	}
	return a
}

// containedKey returns k with checks that never panic; nil for checks that it lacks.
func (p *pluginEntry) containedKey(argument string, k hook.PolicyKey) *hook.PolicyKey {
	contained := func(check func() error) (err error) {
		defer p.contain(onCheck)
		err = &hook.InvalidError{What: "value of " + argument[len("x-"):] + ": the plugin " + p.name + " failed on it"}
		if wrong := check(); wrong != nil {
			return keyError(wrong)
		}
		return nil
	}
	if check := k.Check; check != nil {
		k.Check = func(v any) error { return contained(func() error { return check(v) }) }
	}
	if check := k.CheckWith; check != nil {
		k.CheckWith = func(v any, of func(string) (any, bool)) error {
			return contained(func() error { return check(v, of) })
		}
	}
	return &k
}

// argumentError returns a new error with the content of a plugin's error. It panics if the plugin's error does.
func argumentError(wrong error) error {
	if e, ok := errors.AsType[*hook.ArgTypeError](wrong); ok {
		return &hook.ArgTypeError{Type: e.Type}
	}
	return &hook.ArgError{Term: wrong.Error()}
}

// keyError is argumentError for a key of policies.
func keyError(wrong error) error {
	if e, ok := errors.AsType[*hook.InvalidError](wrong); ok {
		return &hook.InvalidError{What: e.What}
	}
	return errors.New(wrong.Error())
}
