package definitions

import (
	"errors"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/policies"
)

// LimitsComponent is the component of the parameter that holds a vhost's limits.
const LimitsComponent = "vhost-limits"

// PolicyComponents are the components whose parameters are policies.
var PolicyComponents = map[string]policies.Kind{
	policies.User.String():     policies.User,
	policies.Operator.String(): policies.Operator,
}

// GlobalParameter returns the definition of a global parameter.
func GlobalParameter(p store.GlobalParameter) jsonobj.Object {
	return object{{"name", p.Name}, {"value", p.Value}}
}

// Parameter returns the definition of a parameter.
func Parameter(vhost string, p vhost.Parameter) jsonobj.Object {
	return object{{"value", p.Value}, {"vhost", vhost}, {"component", p.Component}, {"name", p.Name}}
}

// OperatorParameter returns an operator policy as RabbitMQ stores it: as a parameter.
func OperatorParameter(vhost string, p *policies.Policy) jsonobj.Object {
	return object{
		{"value", object{
			{"pattern", p.Pattern}, {"definition", PolicyDefinition(p.Definition)}, {"priority", p.Priority}, {"apply-to", p.ApplyTo},
		}},
		{"vhost", vhost},
		{"component", policies.Operator.String()},
		{"name", p.Name},
	}
}

// Parameters returns the definitions of a vhost's parameters, operator policies among them.
func Parameters(v *vhost.VHost) []jsonobj.Object {
	var all []object
	for _, p := range v.Parameters().All() {
		all = append(all, Parameter(v.Name(), p))
	}
	for _, p := range v.Policies().List(policies.Operator) {
		all = append(all, OperatorParameter(v.Name(), p))
	}
	return all
}

// Policy returns the definition of a policy.
func Policy(vhost string, p *policies.Policy) jsonobj.Object {
	return object{
		{"vhost", vhost},
		{"name", p.Name},
		{"pattern", p.Pattern},
		{"apply-to", p.ApplyTo},
		{"definition", PolicyDefinition(p.Definition)},
		{"priority", p.Priority},
	}
}

// PolicyDefinition returns the settings of a policy.
func PolicyDefinition(d policies.Definition) jsonobj.Object {
	o := make(object, len(d))
	for i, e := range d {
		o[i] = member{e.Key, jsonobj.FromParsed(e.Value)}
	}
	return o
}

// ReadPolicy reads a policy.
func ReadPolicy(rules *policies.Rules, kind policies.Kind, name string, b []byte) (*policies.Policy, error) {
	p, err := rules.Parse(kind, name, b)
	switch {
	case errors.Is(err, policies.ErrNotJSON):
		if _, err := jsonobj.Parse(b); err != nil {
			return nil, err // with the position
		}
		return nil, jsonobj.Errorf("%s", err.Error())
	case err != nil:
		return nil, jsonobj.Errorf("%s", err.Error())
	}
	return p, nil
}

// VHost returns the definition of a vhost.
func VHost(v *vhost.VHost) jsonobj.Object {
	m := v.Metadata()
	o := object{{"name", v.Name()}}
	if m.Description != "" {
		o.Add("description", m.Description)
	}
	if len(m.Tags) > 0 {
		o.Add("tags", m.Tags)
	}
	if m.DefaultQueueType != "" {
		o.Add("default_queue_type", m.DefaultQueueType)
	}
	if m.Tracing {
		o.Add("tracing", true)
	}
	return append(o, member{"metadata", Metadata(&m)})
}

// Metadata returns a vhost's metadata. RabbitMQ writes it twice in a definition, and reads it from here.
func Metadata(m *vhost.Metadata) jsonobj.Object {
	o := object{{"description", m.Description}, {"tags", Tags(m.Tags)}}
	if m.DefaultQueueType != "" {
		o.Add("default_queue_type", m.DefaultQueueType)
	}
	return o
}

// ReadMetadata reads the metadata of an existing or future vhost. RabbitMQ writes "undefined" for no default queue type, files repeat the
// members below "metadata", and requests have "defaultqueuetype".
func ReadMetadata(r *reader, s *store.Store, name string) vhost.Metadata {
	r.Inherit(r.Object("metadata"), "description", "tags", "default_queue_type")
	if !r.Has("default_queue_type") {
		r.Set("default_queue_type", r.Value("defaultqueuetype"))
	}
	m := vhost.Metadata{Description: r.Text("description"), Tags: r.Tags("tags"), DefaultQueueType: r.Text("default_queue_type")}
	if m.DefaultQueueType == "undefined" {
		m.DefaultQueueType = ""
	}
	if m.Tracing = r.Flag("tracing"); !r.Has("tracing") {
		v, exists := s.VHost(name)
		m.Tracing = exists && v.Tracing()
	}
	return m
}
