package vhost

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/rabbit"
)

// Metadata describes a vhost as a whole. Tags are never modified once they are passed on.
type Metadata struct {
	Description      string
	Tags             []string
	DefaultQueueType string // of queues declared without a type that can have it; "" = classic
	Tracing          bool   // see TraceExchange
}

const fieldDescription = "description"

const (
	maxDescription = 4096 // bytes
	maxTags        = 64
)

// CheckName refuses names that no vhost can have.
func CheckName(name string) error {
	switch {
	case name == "":
		return refuse(Precondition, "vhost name is empty")
	case len(name) > rabbit.MaxName:
		return refuse(Precondition, "vhost name of %d bytes: at most %d are allowed", len(name), rabbit.MaxName)
	case !utf8.ValidString(name):
		return refuse(Precondition, "vhost name %q is not UTF-8", name)
	case strings.Contains(name, "\x00"): // permissions cannot name it
		return refuse(Precondition, "vhost name %q has NUL in it", name)
	}
	return nil
}

// Check refuses invalid metadata.
func (m *Metadata) Check() error {
	switch {
	case len(m.Description) > maxDescription:
		return refuse(Precondition, "description of %d bytes: at most %d are allowed", len(m.Description), maxDescription)
	case !utf8.ValidString(m.Description):
		return refuse(Precondition, "description %q is not UTF-8", m.Description)
	case len(m.Tags) > maxTags:
		return refuse(Precondition, "%d tags: at most %d are allowed", len(m.Tags), maxTags)
	}
	for _, tag := range m.Tags {
		if tag == "" || len(tag) > rabbit.MaxName || !utf8.ValidString(tag) {
			return refuse(Precondition, "tag %q: is not UTF-8 of 1 to %d bytes", tag, rabbit.MaxName)
		}
	}
	switch m.DefaultQueueType {
	case "", queue.Classic, queue.Quorum:
		return nil
	}
	return refuse(Precondition, "default queue type '%s' is not offered, only 'classic' and 'quorum'", m.DefaultQueueType)
}

// Equal reports whether both say the same.
func (m Metadata) Equal(other Metadata) bool {
	return m.Description == other.Description && slices.Equal(m.Tags, other.Tags) && m.DefaultQueueType == other.DefaultQueueType &&
		m.Tracing == other.Tracing
}

// description is the metadata of a vhost.
type description struct {
	mu      *sync.RWMutex
	changes *changes

	metadata Metadata    // mu guards it
	tracing  atomic.Bool // metadata.Tracing
}

// Metadata returns the metadata.
func (d *description) Metadata() Metadata {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.metadata
}

// SetMetadata replaces the metadata. Existing queues keep their type.
func (d *description) SetMetadata(m Metadata) error {
	if err := m.Check(); err != nil {
		return err
	}
	m.Tags = slices.Clone(m.Tags)
	return d.changes.make(fixedMode(exclusive), func() (apply func(), err error) {
		d.changes.addIfDurable(d.changes.defineMetadata(opDescribe, &m))
		return func() { d.adopt(m) }, nil
	})
}

// adopt applies metadata. The caller holds mu.
func (d *description) adopt(m Metadata) {
	d.metadata = m
	d.tracing.Store(m.Tracing)
}

// define appends the definition that the vhost exists. The caller holds mu.
func (d *description) define(b []byte) []byte {
	return amqp.AppendTable(b, d.changes.defineVHost(&d.metadata))
}

// Tracing reports whether the vhost is traced.
func (d *description) Tracing() bool { return d.tracing.Load() }

// defineVHost makes the definition that the vhost exists.
func (d definer) defineVHost(m *Metadata) amqp.Table {
	def := d.defineMetadata(opVHost, m)
	if d.placement == 0 {
		return def
	}
	return append(def, amqp.Field{Key: fieldPlacement, Value: int64(d.placement)})
}

func (d definer) defineMetadata(op string, m *Metadata) amqp.Table {
	tags := make(amqp.Array, len(m.Tags))
	for i, tag := range m.Tags {
		tags[i] = tag
	}
	return d.define(op, m.fields(&tags)...)
}

func (m *Metadata) fields(tags *amqp.Array) []fieldRef {
	return []fieldRef{
		ref(fieldDescription, &m.Description), ref("tags", tags), ref("default-queue-type", &m.DefaultQueueType), ref("tracing", &m.Tracing),
	}
}

// readMetadata reads metadata. Old definitions have none.
func readMetadata(d *definition.Definition) (m Metadata, err error) {
	if _, has := d.Fields.Lookup(fieldDescription); !has {
		return m, nil
	}
	var tags amqp.Array
	err = read(d, m.fields(&tags)...)
	for _, raw := range tags {
		tag, _ := raw.(string)
		m.Tags = append(m.Tags, tag)
	}
	return m, err
}

// applyDefaultType gives the vhost's default type to a queue that is declared without a type, if the queue can have it.
func (d *description) applyDefaultType(q *QueueDeclare) {
	q.ApplyDefaultType(d.Metadata().DefaultQueueType)
}

// ApplyDefaultType gives a type to a queue that is declared without one, if the queue can have it.
func (d *QueueDeclare) ApplyDefaultType(t string) {
	fits := d.Durable && !d.Exclusive && !d.AutoDelete && d.Name != ""
	if _, chosen := d.Args.Lookup(argQueueType); chosen || !fits {
		return
	}
	if t == queue.Quorum {
		d.Args = append(slices.Clip(d.Args), amqp.Field{Key: argQueueType, Value: t})
	}
}
