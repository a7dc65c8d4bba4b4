package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/vhost"
)

// GlobalParameter is a value that is kept for somebody else and belongs to no vhost.
type GlobalParameter struct {
	Name  string
	Value json.RawMessage
}

// globals are the global parameters. Their definitions are field tables as those of a vhost, with these fields:
//
//	op      what happened: global.none, there are no parameters; global.set; global.clear
//	name    of the parameter
//	value   JSON; of global.set alone
type globals struct {
	keeper   *definitionLog
	changing sync.Mutex // held while they change, until that is durable: only then it is in force

	mu  sync.RWMutex // guards what follows, which is changed with changing held, too
	all map[string]json.RawMessage
}

const (
	opNoGlobals   = "global.none"
	opSetGlobal   = "global.set"
	opClearGlobal = "global.clear"

	fieldName  = "name"
	fieldValue = "value"
)

// definesGlobals reports whether an op is that of a definition of global parameters.
func definesGlobals(op string) bool { return strings.HasPrefix(op, "global.") }

func defineGlobal(op, name string, value ...amqp.Field) amqp.Table {
	return append(amqp.Table{{Key: "op", Value: op}, {Key: fieldName, Value: name}}, value...)
}

func defineGlobalSet(name string, value []byte) amqp.Table {
	return defineGlobal(opSetGlobal, name, amqp.Field{Key: fieldValue, Value: string(value)})
}

// maxGlobals bounds the number of global parameters, maxGlobalName their names, in bytes.
const (
	maxGlobals    = 10_000
	maxGlobalName = 255
)

// GlobalParameters lists the global parameters by name.
func (s *Store) GlobalParameters() []GlobalParameter {
	g := &s.globals
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

// CheckGlobalParameter reports what is wrong with a global parameter, as a [*vhost.Error].
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

// CheckGlobalParameters reports whether there can be all of these global parameters, which may each alone, as a [*vhost.Error]. Of those
// with the same name the last counts.
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

// SetGlobalParameter sets a global parameter. value is the caller's again afterwards.
func (s *Store) SetGlobalParameter(name string, value []byte) (created bool, err error) {
	value, err = compactGlobal(name, value)
	if err != nil {
		return false, err
	}
	return s.globals.set(name, value)
}

func (g *globals) set(name string, value []byte) (created bool, err error) {
	g.changing.Lock()
	defer g.changing.Unlock()
	_, exists := g.all[name]
	if !exists && len(g.all) >= maxGlobals {
		return false, &vhost.Error{Kind: vhost.Precondition, Text: fmt.Sprintf("there are %d global parameters: no more are allowed", len(g.all))}
	}
	if !g.fits(name, value) {
		return false, &vhost.Error{Kind: vhost.Precondition, Text: fmt.Sprintf("the global parameters have more than %d bytes then", vhost.MaxParameters)}
	}
	return !exists, g.change(defineGlobalSet(name, value), func() { g.all[name] = value })
}

// fits reports whether there is room for a parameter, in the place of what is there now. The caller holds changing.
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
	return s.globals.clear(name)
}

func (g *globals) clear(name string) (existed bool, err error) {
	g.changing.Lock()
	defer g.changing.Unlock()
	if _, existed = g.all[name]; !existed {
		return false, nil
	}
	return true, g.change(defineGlobal(opClearGlobal, name), func() { delete(g.all, name) })
}

// change makes a change once it is durable. The caller holds changing.
func (g *globals) change(def amqp.Table, apply func()) error {
	g.keeper.Write(amqp.AppendTable(nil, def))
	if err := g.keeper.WaitDurable(); err != nil {
		return fmt.Errorf("global parameters: definitions: %w", err)
	}
	g.mu.Lock()
	apply()
	g.mu.Unlock()
	if g.keeper.NeedsCompaction() {
		g.keeper.Rewrite(g.parts)
	}
	return nil
}

// condense writes the definitions of all there is in place of all that was written so far, if that is worth it.
func (g *globals) condense() {
	g.changing.Lock()
	defer g.changing.Unlock()
	if g.keeper.NeedsCompaction() {
		g.keeper.Rewrite(g.parts)
	}
}

// parts yields the definitions of all there is in parts. The caller holds changing.
func (g *globals) parts(yield func([]byte) bool) {
	b := amqp.AppendTable(nil, amqp.Table{{Key: "op", Value: opNoGlobals}})
	for name, value := range g.all {
		if b = amqp.AppendTable(b, defineGlobalSet(name, value)); len(b) < partSize {
			continue
		}
		if !yield(b) {
			return
		}
		b = b[:0]
	}
	yield(b)
}

// partSize is about how many bytes of global parameters are written at once.
const partSize = 32 << 10

// apply takes in the next definition. Nobody else may use the store yet.
func (g *globals) apply(op string, fields amqp.Table) error {
	if op == opNoGlobals {
		clear(g.all)
		return nil
	}
	raw, _ := fields.Lookup(fieldName)
	name, ok := raw.(string)
	raw, _ = fields.Lookup(fieldValue)
	value, has := raw.(string)
	switch {
	case ok && op == opClearGlobal:
		delete(g.all, name)
	case ok && has && op == opSetGlobal:
		g.all[name] = json.RawMessage(value)
	default:
		return fmt.Errorf("definition %q: is unknown, or incomplete", op)
	}
	return nil
}
