package definitions

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/policies"
)

// Section is a list of exported definitions.
type Section struct {
	Name  string
	Items []Item
}

// Item is an exported definition.
type Item struct {
	VHost string // that the definition is or belongs to; "" = it belongs to the broker
	// Value makes the definition: an object, or JSON. It is called when the definition is written: there may be a hundred thousand queues.
	Value func() any
}

// sectionsInVHosts are the sections of contents, in order.
var sectionsInVHosts = [...]string{"parameters", "policies", "queues", "exchanges", "bindings"}

// Collect returns the definitions of the whole broker, or of one vhost unless v is nil. It
// leaves out exclusive queues and their bindings, which end with their connection, and
// definitions that every vhost has. With modules it adds the broker's expiry policies, or
// the policies that the vhost's definitions name.
func (d *Definitions) Collect(v *vhost.VHost, modules bool) (all []Section) {
	if v == nil {
		vs, vhosts := d.Store.VHosts(), Section{Name: "vhosts"}
		for _, v := range vs {
			vhosts.add(v, func() any { return VHost(v) })
		}
		all = append(
			all, section("users", d.Store.Users().List(), User), vhosts, section("permissions", d.Store.Users().Grants(), Permissions),
			section("topic_permissions", d.Store.Users().TopicGrants(), TopicPermissions),
			section("global_parameters", d.Store.GlobalParameters(), GlobalParameter),
		)
		all = append(all, contents(vs, func(o object) object { return o })...)
	} else {
		all = contents([]*vhost.VHost{v}, func(o object) object { return o.Without("vhost") })
	}
	if modules {
		if carried := d.carried(v); len(carried) > 0 {
			all = append(all, section(modulesSection, carried, describeModule))
		}
	}
	return all
}

// section returns a section of definitions that belong to the broker.
func section[T any](name string, items []T, describe func(T) object) Section {
	s := Section{Name: name}
	for _, it := range items {
		s.Items = append(s.Items, Item{Value: func() any { return describe(it) }})
	}
	return s
}

func (s *Section) add(v *vhost.VHost, value func() any) {
	s.Items = append(s.Items, Item{v.Name(), value})
}

// contents returns the definitions in vhosts. Queues, exchanges and bindings go through scoped.
func contents(vs []*vhost.VHost, scoped func(object) object) []Section {
	all := make([]Section, len(sectionsInVHosts))
	for i, name := range sectionsInVHosts {
		all[i].Name = name
	}
	parameters, own, queues, exchanges, bindings := &all[0], &all[1], &all[2], &all[3], &all[4]
	for _, v := range vs {
		for _, p := range Parameters(v) {
			parameters.add(v, func() any { return p })
		}
		for _, p := range v.Policies().List(policies.User) {
			own.add(v, func() any { return Policy(v.Name(), p) })
		}
		for _, q := range v.Queues() {
			if cfg := q.Config(); !cfg.Exclusive {
				queues.add(v, func() any { return scoped(Queue(cfg)) })
			}
		}
		for _, x := range v.Exchanges() {
			if _, always := vhost.Predeclared(x.Name); !always {
				exchanges.add(v, func() any { return scoped(Exchange(v.Name(), x)) })
			}
		}
		for _, b := range SortBindings(exported(v)) {
			bindings.add(v, func() any { return scoped(Binding(b)) })
		}
	}
	return all
}

// exported returns the bindings of a vhost without those to exclusive queues.
func exported(v *vhost.VHost) []VHostBinding {
	var all []VHostBinding
	for _, b := range BindingsOf(v, v.Bindings()) {
		if q := v.Mailbox(b.Destination); b.ToExchange || q != nil && !q.Config().Exclusive {
			all = append(all, b)
		}
	}
	return all
}

// ReadSections reads another node's export: the vhosts that it has, and their contents.
func ReadSections(b []byte) (all []Section, err error) {
	var top map[string]json.RawMessage
	if err := json.Unmarshal(b, &top); err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	for _, name := range append(sectionsInVHosts[:], "vhosts") {
		if top[name] == nil {
			continue
		}
		raws, err := jsonobj.ParseItems(top[name])
		if err != nil {
			return nil, fmt.Errorf("export: %s: %w", name, err)
		}
		s := Section{Name: name}
		for _, raw := range raws {
			var o struct{ Name, VHost string }
			_ = json.Unmarshal(raw, &o) // a name that is no text names no vhost
			if name == "vhosts" {
				o.VHost = o.Name
			}
			s.Items = append(s.Items, Item{o.VHost, func() any { return raw }})
		}
		all = append(all, s)
	}
	return all, nil
}

// bufferSize is how many bytes are written at a time.
const bufferSize = 32 << 10

// Write writes definitions as the JSON of an export. It stops at the first error.
func (d *Definitions) Write(out io.Writer, all []Section) error {
	w := bufio.NewWriterSize(out, bufferSize)
	head := object{{"rabbit_version", d.RabbitMQ}, {"rabbitmq_version", d.RabbitMQ}, {"product_name", d.Product}, {"product_version", d.Version}}
	line := head.Append(nil)
	line = line[:len(line)-1] // without its brace
	for _, s := range all {
		line = append(jsonobj.Append(append(line, ','), s.Name), ":["...)
		for i, it := range s.Items {
			if i > 0 {
				line = append(line, ',')
			}
			line = jsonobj.Append(line, it.Value())
			if _, err := w.Write(line); err != nil {
				return fmt.Errorf("export: %w", err)
			}
			line = line[:0]
		}
		line = append(line, ']')
	}
	_, _ = w.Write(append(line, '}')) // Flush returns its error
	if err := w.Flush(); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	return nil
}
