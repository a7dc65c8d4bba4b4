package store

import (
	"fmt"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/vhost"
)

// What is written of a vhost, of the users or of the global parameters is replaced in parts, so that nobody waits until all
// of it was made and no entry of the log gets too large. A part is a definition of our own:
//
//	op           rewrite
//	of           what is written anew: "vhost", "users" or "globals"
//	vhost        its name, "" if it is none
//	first, last  whether this is the first part, or the last
//	definitions  one after another
//
// Nothing of it counts before the last part is there. Then it replaces all that was written before the first; what was written
// between two parts comes between them.
const (
	opRewrite = "rewrite"

	fieldOf          = "of"
	fieldVHost       = "vhost"
	fieldFirst       = "first"
	fieldLastPart    = "last"
	fieldDefinitions = "definitions"
)

// scope is what is written anew as one.
type scope struct{ kind, vhost string }

const (
	scopeVHost   = "vhost"
	scopeUsers   = "users"
	scopeGlobals = "globals"
)

// part is a part of a rewrite.
type part struct {
	of          scope
	first, last bool
	definitions []byte
}

func (p *part) definition() amqp.Table {
	return amqp.Table{
		{Key: "op", Value: opRewrite},
		{Key: fieldOf, Value: p.of.kind},
		{Key: fieldVHost, Value: p.of.vhost},
		{Key: fieldFirst, Value: p.first},
		{Key: fieldLastPart, Value: p.last},
		{Key: fieldDefinitions, Value: p.definitions},
	}
}

// partOf reads a part.
func partOf(def *vhost.Definition) (p part, err error) {
	read := func(key string, into any) {
		raw, _ := def.Fields().Lookup(key)
		ok := false
		switch into := into.(type) {
		case *string:
			*into, ok = raw.(string)
		case *bool:
			*into, ok = raw.(bool)
		case *[]byte:
			*into, ok = raw.([]byte)
		}
		if !ok && err == nil {
			err = fmt.Errorf("definition %q: %s is missing or of a wrong type", def.Op, key)
		}
	}
	read(fieldOf, &p.of.kind)
	read(fieldVHost, &p.of.vhost)
	read(fieldFirst, &p.first)
	read(fieldLastPart, &p.last)
	read(fieldDefinitions, &p.definitions)
	return p, err
}

// scopeOf is what a definition belongs to that is not a part.
func scopeOf(def *vhost.Definition) scope {
	switch {
	case definesGlobals(def.Op):
		return scope{kind: scopeGlobals}
	case auth.IsUserOp(def.Op) || def.VHost == "":
		return scope{kind: scopeUsers} // they keep the numbers of queues, too
	}
	return scope{scopeVHost, def.VHost}
}

// rewriting is a rewrite whose last part has not been found yet.
type rewriting struct {
	definitions []byte // in their order
	tally       logUsage
}

// rewrites are the rewrites that were begun.
type rewrites map[scope]*rewriting

// found takes in a part. With the last one it returns all there is.
func (r rewrites) found(extent uint32, p *part, size int) (all *rewriting) {
	w := r[p.of]
	if p.first {
		w = &rewriting{} // another one was never finished
		r[p.of] = w
	}
	if w == nil {
		return nil // the front of the log went, and with it the parts before: another rewrite follows
	}
	w.definitions = append(w.definitions, p.definitions...)
	w.tally.add(extent, int64(size))
	if !p.last {
		return nil
	}
	delete(r, p.of)
	return w
}

// pass takes in a definition that was written between two parts, maybe.
func (r rewrites) pass(extent uint32, def *vhost.Definition) {
	if len(r) == 0 {
		return
	}
	w := r[scopeOf(def)]
	if w == nil {
		return
	}
	w.definitions = amqp.AppendTable(w.definitions, def.Fields())
	w.tally.add(extent, int64(def.Size))
}
