package store

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/vhost"
)

// GlobalParameter is a value that belongs to no vhost. Clients of the management API store
// them; the broker does not use them.
type GlobalParameter struct {
	Name  string
	Value json.RawMessage
}

// globals holds the global parameters. Their definitions, see core/definition, are
//
//	global.none   no fields; there are no parameters
//	global.set    name, value: JSON
//	global.clear  name
type globals struct {
	log definition.Log // when its WaitDurable returns, follow has been called with the written definitions
	// follows is called before a change is planned, with changing held.
	follows  func()
	changing definition.Lock // held during a change, until it has taken effect

	mu  sync.RWMutex // guards all
	all globalValues
}

// globalValues are the values of global parameters, by name.
type globalValues map[string]json.RawMessage

const (
	opNoGlobals   = "global.none"
	opSetGlobal   = "global.set"
	opClearGlobal = "global.clear"

	fieldName  = "name"
	fieldValue = "value"
)

func isGlobalOp(op string) bool { return strings.HasPrefix(op, "global.") }

func defineGlobal(op, name string, value ...amqp.Field) amqp.Table {
	return append(definition.New(op, amqp.Field{Key: fieldName, Value: name}), value...)
}

func defineGlobalSet(name string, value []byte) amqp.Table {
	return defineGlobal(opSetGlobal, name, amqp.Field{Key: fieldValue, Value: string(value)})
}

// maxGlobals bounds the number of global parameters, maxGlobalName the bytes of their names.
const (
	maxGlobals    = 10_000
	maxGlobalName = 255
)

// GlobalParameters lists the global parameters by name.
func (s *Store) GlobalParameters() []GlobalParameter {
	g := s.globals
	g.mu.RLock()
	defer g.mu.RUnlock()
	all := make([]GlobalParameter, 0, len(g.all))
	for name, value := range g.all {
		all = append(all, GlobalParameter{name, slices.Clone(value)})
	}
	slices.SortFunc(all, func(a, b GlobalParameter) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// GlobalParameter returns the value of a global parameter, and whether it exists.
func (s *Store) GlobalParameter(name string) (json.RawMessage, bool) {
	s.globals.mu.RLock()
	defer s.globals.mu.RUnlock()
	value, ok := s.globals.all[name]
	return slices.Clone(value), ok
}

// CheckGlobalParameter returns a [*vhost.Error] if there can be no such global parameter.
func CheckGlobalParameter(name string, value []byte) error {
	_, err := compactGlobal(name, value)
	return err
}

func compactGlobal(name string, value []byte) ([]byte, error) {
	if name == "" || len(name) > maxGlobalName || !utf8.ValidString(name) {
		return nil, &vhost.Error{
			Kind: vhost.Precondition, Text: fmt.Sprintf("global parameter '%s': a name is UTF-8 of 1 to %d bytes", name, maxGlobalName),
		}
	}
	value, err := vhost.CompactJSON(value)
	if err != nil {
		return nil, fmt.Errorf("global parameter '%s': %w", name, err)
	}
	return value, nil
}

// CheckGlobalParameters returns a [*vhost.Error] if these global parameters together exceed
// the limits. Of several with the same name the last counts.
func CheckGlobalParameters(all []GlobalParameter) error {
	last := make(map[string]int, len(all))
	size := 0
	for _, p := range all {
		n := len(p.Name) + len(p.Value)
		size += n - last[p.Name]
		last[p.Name] = n
	}
	if len(last) > maxGlobals {
		return &vhost.Error{Kind: vhost.Precondition, Text: fmt.Sprintf("%d global parameters: at most %d are allowed", len(last), maxGlobals)}
	}
	if size > vhost.MaxParameters {
		return &vhost.Error{Kind: vhost.Precondition, Text: fmt.Sprintf("the global parameters have %d bytes: at most %d are allowed", size, vhost.MaxParameters)}
	}
	return nil
}

// SetGlobalParameter sets a global parameter. The caller may reuse value afterwards.
func (s *Store) SetGlobalParameter(name string, value []byte) (created bool, err error) {
	value, err = compactGlobal(name, value)
	if err != nil {
		return false, err
	}
	g := s.globals
	g.plan()
	defer g.changing.Unlock()
	created, err = g.check(name, value)
	if err != nil {
		return false, cmp.Or(g.confirm(), err)
	}
	return created, g.change(defineGlobalSet(name, value))
}

// check returns an error if a parameter cannot be set. The caller holds changing.
func (g *globals) check(name string, value []byte) (created bool, err error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	_, exists := g.all[name]
	if !exists && len(g.all) >= maxGlobals {
		return false, &vhost.Error{Kind: vhost.Precondition, Text: fmt.Sprintf("there are %d global parameters: no more are allowed", len(g.all))}
	}
	if !g.fits(name, value) {
		return false, &vhost.Error{Kind: vhost.Precondition, Text: fmt.Sprintf("the global parameters have more than %d bytes then", vhost.MaxParameters)}
	}
	return !exists, nil
}

// fits reports whether all parameters together stay within the limit when one is set. The
// caller holds mu.
func (g *globals) fits(name string, value []byte) bool {
	size := len(name) + len(value)
	for other, value := range g.all {
		if other != name {
			size += len(other) + len(value)
		}
	}
	return size <= vhost.MaxParameters
}

// ClearGlobalParameter deletes a global parameter, and reports whether there was one.
func (s *Store) ClearGlobalParameter(name string) (existed bool, err error) {
	g := s.globals
	g.plan()
	defer g.changing.Unlock()
	if _, existed = s.GlobalParameter(name); !existed {
		return false, g.confirm()
	}
	return true, g.change(defineGlobal(opClearGlobal, name))
}

// confirm returns an error if reads since changing was locked may have been out of date. The caller holds changing.
func (g *globals) confirm() error {
	return g.errorOf(g.log.WaitDurable())
}

func (*globals) errorOf(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("global parameters: definitions: %w", err)
}

// change makes a change, and returns when it has taken effect. The caller holds changing.
func (g *globals) change(def amqp.Table) error {
	g.log.Write(amqp.AppendTable(nil, def))
	if err := g.errorOf(g.log.WaitDurable()); err != nil {
		return err
	}
	g.compact()
	return nil
}

// plan takes the lock on changes, and begins to plan one.
func (g *globals) plan() {
	g.changing.Lock()
	g.follows()
}

func (g *globals) compactDefinitions() {
	g.plan()
	defer g.changing.Unlock()
	g.compact()
}

// compact rewrites all definitions, if that pays. The caller holds changing.
func (g *globals) compact() {
	if g.log.NeedsCompaction() {
		g.mu.RLock()
		all := maps.Clone(g.all)
		g.mu.RUnlock()
		g.log.Rewrite(definition.Parts(all.definitions))
	}
}

func (v globalValues) definitions(yield func(amqp.Table) bool) {
	more := yield(definition.New(opNoGlobals))
	for name, value := range v {
		more = more && yield(defineGlobalSet(name, value))
	}
}

// follow applies definitions of the log, all at once.
func (g *globals) follow(defs []*definition.Definition) (err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, d := range defs {
		err = errors.Join(err, g.all.Apply(d))
	}
	return err
}

// replace replaces all values.
func (g *globals) replace(all globalValues) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = all
}

// Apply applies the next definition.
func (v globalValues) Apply(d *definition.Definition) error {
	var name, value string
	var err error
	if d.Op != opNoGlobals {
		definition.Read(d, fieldName, &name, &err)
	}
	switch d.Op {
	case opNoGlobals:
		clear(v)
	case opClearGlobal:
		delete(v, name)
	case opSetGlobal:
		if definition.Read(d, fieldValue, &value, &err); err == nil {
			v[name] = json.RawMessage(value)
		}
	default:
		return d.Unknown()
	}
	return err
}
