package store

import (
	"fmt"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
)

// Beside users and global parameters the registry of a cluster has these definitions, see core/definition:
//
//	member.none       nothing more: there are no members, the cluster has no name, and nothing was done once
//	member.cluster    name: of the cluster
//	member.set        number, address, name, format: a node that belongs to the cluster
//	member.remove     number
//	member.once       name: the call of Once with this name has been made
//	placement.none    last: there are no placements. Numbers up to last were given
//	placement.set     vhost, shard, number, description, tags, default-queue-type, tracing
//	placement.remove  vhost
//	module.part       name, digest, size, from, bytes: a piece of a module, which begins from bytes into it
//	module.set        name, digest, size, options, revision: the module whose pieces came before, from its first to its last
//	module.delete     name
//
// A node's number is 64 bits, written as if it were signed. Tags are an array of strings. A digest is a module's SHA-256, 32 bytes.
const (
	opNoMembers       = "member.none"
	opSetCluster      = "member.cluster"
	opSetMember       = "member.set"
	opRemoveMember    = "member.remove"
	opOnce            = "member.once"
	opNoPlacements    = "placement.none"
	opSetPlacement    = "placement.set"
	opRemovePlacement = "placement.remove"
	opModulePart      = "module.part"
	opSetModule       = "module.set"
	opDeleteModule    = "module.delete"
)

// The fields of definitions of the registry. Others are those of globals and of rewrites.
const (
	fieldNumber    = "number"
	fieldAddress   = "address"
	fieldFormat    = "format"
	fieldShard     = "shard"
	fieldDesc      = "description"
	fieldTags      = "tags"
	fieldQueueType = "default-queue-type"
	fieldTracing   = "tracing"
	fieldDigest    = "digest"
	fieldSize      = "size"
	fieldFrom      = "from"
	fieldBytes     = "bytes"
	fieldModule    = "options"
	fieldRevision  = "revision"
)

// The scopes that only a registry has. Each module is one, which is written again as a whole.
const (
	scopeMembers    = "members"
	scopePlacements = "placements"
	scopeModule     = "module"
)

// registryScopeOf returns the scope of a definition of a registry that is no part of a rewrite.
func registryScopeOf(d *definition.Definition) (of scope, err error) {
	kind, _, _ := strings.Cut(d.Op, ".")
	switch kind {
	case "member":
		return scope{kind: scopeMembers}, nil
	case "placement":
		return scope{kind: scopePlacements}, nil
	case "module":
		of.kind = scopeModule
		definition.Read(d, fieldName, &of.vhost, &err)
		return of, err
	}
	of = scopeOf(d)
	if of.kind == scopeVHost || d.Op == opNumbers {
		return of, fmt.Errorf("definition %q: does not belong into the registry", d.Op)
	}
	return of, nil
}

func field(key string, value any) amqp.Field { return amqp.Field{Key: key, Value: value} }

// Member is a node that belongs to the cluster.
type Member struct {
	Number  wlog.NodeID
	Address string // where other nodes reach it, host:port
	Name    string // of the node, as the management API has it
	Format  int64  // the latest format of logs that it reads
}

// maxText bounds addresses and names in the registry, in bytes.
const maxText = 255

func (m *Member) check() error {
	switch {
	case m.Number == 0:
		return fmt.Errorf("member %q: number 0: numbers of nodes begin with 1", m.Address)
	case m.Address == "" || len(m.Address) > maxText:
		return fmt.Errorf("member %d: an address has 1 to %d bytes, not %d", m.Number, maxText, len(m.Address))
	case len(m.Name) > maxText:
		return fmt.Errorf("member %d: a name has up to %d bytes, not %d", m.Number, maxText, len(m.Name))
	case m.Format < 0:
		return fmt.Errorf("member %d: format %d is negative", m.Number, m.Format)
	}
	return nil
}

func defineMember(m *Member) amqp.Table {
	return definition.New(opSetMember, field(fieldNumber, int64(m.Number)), field(fieldAddress, m.Address),
		field(fieldName, m.Name), field(fieldFormat, m.Format))
}

func readMember(d *definition.Definition) (m Member, err error) {
	var number int64
	definition.Read(d, fieldNumber, &number, &err)
	definition.Read(d, fieldAddress, &m.Address, &err)
	definition.Read(d, fieldName, &m.Name, &err)
	definition.Read(d, fieldFormat, &m.Format, &err)
	m.Number = wlog.NodeID(number)
	if err == nil {
		err = m.check()
	}
	return m, err
}

func defineMemberRemoved(number wlog.NodeID) amqp.Table {
	return definition.New(opRemoveMember, field(fieldNumber, int64(number)))
}

func defineName(op, name string) amqp.Table { return definition.New(op, field(fieldName, name)) }

// Placement says where a vhost lives. It is never modified.
type Placement struct {
	VHost    string
	Shard    uint32 // whose log has the vhost
	Number   uint64 // distinguishes vhosts that had the same name at different times
	Metadata vhost.Metadata
}

func (p *Placement) check() error {
	if err := CheckVHost(p.VHost, p.Metadata); err != nil {
		return err
	}
	if p.Shard == 0 || p.Shard > MaxShards {
		return fmt.Errorf("vhost %q: shard %d: vhosts live in shards 1 to %d", p.VHost, p.Shard, MaxShards)
	}
	if p.Number == 0 {
		return fmt.Errorf("vhost %q: number 0: numbers of placements begin with 1", p.VHost)
	}
	return nil
}

func definePlacement(p *Placement) amqp.Table {
	tags := make(amqp.Array, len(p.Metadata.Tags))
	for i, tag := range p.Metadata.Tags {
		tags[i] = tag
	}
	return definition.New(opSetPlacement, field(fieldVHost, p.VHost), field(fieldShard, int64(p.Shard)), field(fieldNumber, int64(p.Number)),
		field(fieldDesc, p.Metadata.Description), field(fieldTags, tags), field(fieldQueueType, p.Metadata.DefaultQueueType),
		field(fieldTracing, p.Metadata.Tracing))
}

func readPlacement(d *definition.Definition) (p Placement, err error) {
	var shard, number int64
	var tags amqp.Array
	definition.Read(d, fieldVHost, &p.VHost, &err)
	definition.Read(d, fieldShard, &shard, &err)
	definition.Read(d, fieldNumber, &number, &err)
	definition.Read(d, fieldDesc, &p.Metadata.Description, &err)
	definition.Read(d, fieldTags, &tags, &err)
	definition.Read(d, fieldQueueType, &p.Metadata.DefaultQueueType, &err)
	definition.Read(d, fieldTracing, &p.Metadata.Tracing, &err)
	for _, raw := range tags {
		tag, _ := raw.(string)
		p.Metadata.Tags = append(p.Metadata.Tags, tag)
	}
	if p.Number = uint64(number); shard > 0 && shard <= MaxShards {
		p.Shard = uint32(shard)
	}
	if err == nil {
		err = p.check()
	}
	return p, err
}

func definePlacementRemoved(vhost string) amqp.Table {
	return definition.New(opRemovePlacement, field(fieldVHost, vhost))
}

func defineNoPlacements(given uint64) amqp.Table {
	return definition.New(opNoPlacements, field(fieldLast, int64(given)))
}
