package store

import (
	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
)

// The definitions of a scope are rewritten in parts: so the scope is not locked all the
// time, and no log entry gets too large. A part is a definition itself:
//
//	op           rewrite
//	of           the scope: "vhost", "users" or "globals"
//	vhost        the vhost's name, "" for another scope
//	first, last  whether this is the first part, or the last
//	definitions  one after another
//
// The parts take effect together, with the last one. They void all definitions written
// before the first part; definitions written between two parts take effect between these
// parts.
const (
	opRewrite = "rewrite"

	fieldOf          = "of"
	fieldVHost       = "vhost"
	fieldFirst       = "first"
	fieldLastPart    = "last"
	fieldDefinitions = "definitions"
)

type part struct {
	of          scope
	first, last bool
	definitions []byte
}

func (p *part) definition() amqp.Table {
	return definition.New(opRewrite,
		amqp.Field{Key: fieldOf, Value: p.of.kind},
		amqp.Field{Key: fieldVHost, Value: p.of.vhost},
		amqp.Field{Key: fieldFirst, Value: p.first},
		amqp.Field{Key: fieldLastPart, Value: p.last},
		amqp.Field{Key: fieldDefinitions, Value: p.definitions},
	)
}

func parsePart(d *definition.Definition) (p part, err error) {
	definition.Read(d, fieldOf, &p.of.kind, &err)
	definition.Read(d, fieldVHost, &p.of.vhost, &err)
	definition.Read(d, fieldFirst, &p.first, &err)
	definition.Read(d, fieldLastPart, &p.last, &err)
	definition.Read(d, fieldDefinitions, &p.definitions, &err)
	return p, err
}

// rewriting is a rewrite whose last part was not replayed yet.
type rewriting struct {
	definitions []byte
	usage       logUsage
}

// rewrites are the rewrites that have begun, by scope.
type rewrites map[scope]*rewriting

// add adds a part. With the last part, add returns the whole rewrite, otherwise nil.
func (r rewrites) add(extent uint32, p *part, size int) *rewriting {
	if p.first { // an earlier rewrite was never finished
		r[p.of] = &rewriting{}
	}
	w := r[p.of]
	if w == nil {
		return nil // the first parts were trimmed from the log, so another rewrite follows
	}
	w.definitions = append(w.definitions, p.definitions...)
	w.usage.add(extent, int64(size))
	if !p.last {
		return nil
	}
	delete(r, p.of)
	return w
}

// insert adds a definition that was written between two parts, if its scope is being rewritten.
func (r rewrites) insert(extent uint32, of scope, d *definition.Definition) {
	if w := r[of]; w != nil {
		w.definitions = amqp.AppendTable(w.definitions, d.Fields)
		w.usage.add(extent, int64(d.Size))
	}
}
