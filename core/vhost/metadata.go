package vhost

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/rabbit"
)

// Metadata are what is said of a vhost as a whole. Nobody changes the tags of one that was handed over.
type Metadata struct {
	Description      string
	Tags             []string
	DefaultQueueType string // of queues declared without a type, where it can be theirs; "" = classic
	Tracing          bool   // see TraceExchange
}

const (
	maxDescription = 4096 // bytes
	maxTags        = 64
)

// CheckName refuses a name that no vhost can have.
func CheckName(name string) error {
	switch {
	case name == "":
		return refuse(Precondition, "vhost name is empty")
	case len(name) > rabbit.MaxName:
		return refuse(Precondition, "vhost name of %d bytes: at most %d are allowed", len(name), rabbit.MaxName)
	case !utf8.ValidString(name):
		return refuse(Precondition, "vhost name %q is not UTF-8", name)
	case strings.Contains(name, "\x00"): // nobody could be given permissions for it
		return refuse(Precondition, "vhost name %q has NUL in it", name)
	}
	return nil
}

// Check reports what is wrong with metadata.
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

// Metadata returns what is said of the vhost.
func (v *VHost) Metadata() Metadata {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.metadata
}

// SetMetadata replaces what is said of the vhost. Queues that exist stay what they are.
func (v *VHost) SetMetadata(m Metadata) error {
	if err := m.Check(); err != nil {
		return err
	}
	m.Tags = slices.Clone(m.Tags)
	return v.change(fixedMode(exclusive), func() (func() error, error) {
		v.logIfDurable(define(opDescribe, v.name, m.fields()...))
		return func() error {
			v.metadata = m
			v.tracing.Store(m.Tracing)
			return nil
		}, nil
	})
}

// logIfDurable notes a definition, unless nothing of the vhost is durable. The caller holds mu.
func (v *VHost) logIfDurable(def amqp.Table) {
	if v.definitionLog != nil {
		v.logDefinition(def)
	}
}

func (m *Metadata) fields() []amqp.Field {
	tags := make(amqp.Array, len(m.Tags))
	for i, tag := range m.Tags {
		tags[i] = tag
	}
	return []amqp.Field{
		{Key: fieldDescription, Value: m.Description},
		{Key: fieldTags, Value: tags},
		{Key: fieldDefaultType, Value: m.DefaultQueueType},
		{Key: fieldTracing, Value: m.Tracing},
	}
}

// readMetadata reads what fields wrote. Before there were any, nothing was.
func readMetadata(d *definition.Definition) (m Metadata, err error) {
	if _, has := d.Fields.Lookup(fieldDescription); !has {
		return m, nil
	}
	var tags amqp.Array
	definition.Read(d, fieldDescription, &m.Description, &err)
	definition.Read(d, fieldTags, &tags, &err)
	definition.Read(d, fieldDefaultType, &m.DefaultQueueType, &err)
	definition.Read(d, fieldTracing, &m.Tracing, &err)
	for _, raw := range tags {
		tag, _ := raw.(string)
		m.Tags = append(m.Tags, tag)
	}
	return m, err
}

// applyDefaultType gives a queue that is declared without a type the one of the vhost, if it can have that.
func (v *VHost) applyDefaultType(d *QueueDeclare) {
	fits := d.Durable && !d.Exclusive && !d.AutoDelete && d.Name != ""
	if _, chosen := d.Args.Lookup(argQueueType); chosen || !fits {
		return
	}
	if t := v.Metadata().DefaultQueueType; t == queue.Quorum {
		d.Args = append(slices.Clip(d.Args), amqp.Field{Key: argQueueType, Value: t})
	}
}
