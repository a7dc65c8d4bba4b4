package vhost

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/rabbit"
)

// Parameter is a value that is kept for somebody else: its component. Only the vhost's limits mean something here.
type Parameter struct {
	Component, Name string
	Value           json.RawMessage
}

type parameterKey struct{ component, name string }

const (
	maxParameters = 10_000
	maxParameter  = 64 << 10 // bytes of a value
	// MaxParameters is how many bytes the names and values of all parameters of a vhost may have, or of all global ones: they
	// stay in memory, and are written anew with the other definitions.
	MaxParameters = 16 << 20
)

// Check reports what is wrong with a parameter.
func (p *Parameter) Check() error {
	_, err := p.compact()
	return err
}

// compact returns the checked value without spaces.
func (p *Parameter) compact() ([]byte, error) {
	if err := p.checkNames(); err != nil {
		return nil, err
	}
	value, err := CompactJSON(p.Value)
	if err != nil {
		return nil, refuse(Precondition, "parameter '%s' of component '%s': %v", p.Name, p.Component, err)
	}
	if p.Component == limitsComponent {
		_, err = parseLimits(value)
	}
	return value, err
}

func (p *Parameter) checkNames() error {
	switch {
	case p.Component == "policy" || p.Component == "operator_policy":
		return refuse(Precondition, "component '%s': policies are no parameters here", p.Component)
	case p.Component == limitsComponent && p.Name != limitsName:
		return refuse(Precondition, "component '%s': the only parameter is '%s'", p.Component, limitsName)
	}
	for _, name := range []string{p.Component, p.Name} {
		if name == "" || len(name) > rabbit.MaxName || !utf8.ValidString(name) {
			return refuse(Precondition, "parameter '%s' of component '%s': a name is UTF-8 of 1 to %d bytes", p.Name, p.Component, rabbit.MaxName)
		}
	}
	return nil
}

// CompactJSON checks that a value to be kept is JSON and not too large, and returns it without spaces.
func CompactJSON(value []byte) ([]byte, error) {
	if len(value) > maxParameter {
		return nil, refuse(Precondition, "value of %d bytes: at most %d are allowed", len(value), maxParameter)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, value); err != nil || !utf8.Valid(value) {
		return nil, refuse(Precondition, "value is not JSON")
	}
	return b.Bytes(), nil
}

// invalidParameter is what RabbitMQ says of a value that its component does not like.
func invalidParameter(line string) error {
	return refuse(Precondition, "Validation failed\n\n%s\n", line)
}

// Parameters lists the parameters by component and name.
func (v *VHost) Parameters() []Parameter {
	v.mu.RLock()
	defer v.mu.RUnlock()
	all := make([]Parameter, 0, len(v.parameters))
	for k, value := range v.parameters {
		all = append(all, Parameter{k.component, k.name, slices.Clone(value)})
	}
	slices.SortFunc(all, func(a, b Parameter) int {
		return cmp.Or(strings.Compare(a.Component, b.Component), strings.Compare(a.Name, b.Name))
	})
	return all
}

// Parameter returns the value of a parameter, and whether it exists.
func (v *VHost) Parameter(component, name string) (json.RawMessage, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	value, ok := v.parameters[parameterKey{component, name}]
	return slices.Clone(value), ok
}

// SetParameter sets a parameter, which is the caller's again afterwards.
func (v *VHost) SetParameter(p Parameter) (created bool, err error) {
	value, err := p.compact()
	if err != nil {
		return false, err
	}
	k := parameterKey{p.Component, p.Name}
	err = v.change(fixedMode(exclusive), func() (apply func() error, err error) {
		_, exists := v.parameters[k]
		if !exists && len(v.parameters) >= maxParameters {
			return nil, refuse(Precondition, "there are %d parameters in vhost '%s': at most %d are allowed", len(v.parameters), v.name, maxParameters)
		}
		if !v.fits(k, value) {
			return nil, refuse(Precondition, "the parameters in vhost '%s' have more than %d bytes then", v.name, MaxParameters)
		}
		v.logIfDurable(v.defineParameter(opSetParameter, k, amqp.Field{Key: fieldValue, Value: string(value)}))
		return func() error {
			created = !exists
			if v.parameters == nil {
				v.parameters = map[parameterKey]json.RawMessage{}
			}
			v.parameters[k] = value
			v.applyLimits()
			return nil
		}, nil
	})
	return created, err
}

// CheckParameters reports whether a vhost can have all of these parameters, which may each alone. Of those with the same name the last counts.
func CheckParameters(vhost string, all []Parameter) error {
	last := make(map[parameterKey]int, len(all))
	size := 0
	for _, p := range all {
		k, n := parameterKey{p.Component, p.Name}, len(p.Component)+len(p.Name)+len(p.Value)
		size += n - last[k]
		last[k] = n
	}
	if len(last) > maxParameters {
		return refuse(Precondition, "%d parameters in vhost '%s': at most %d are allowed", len(last), vhost, maxParameters)
	}
	if size > MaxParameters {
		return refuse(Precondition, "the parameters in vhost '%s' have %d bytes: at most %d are allowed", vhost, size, MaxParameters)
	}
	return nil
}

// fits reports whether there is room for a parameter, in the place of what is there now. The caller holds mu.
func (v *VHost) fits(k parameterKey, value []byte) bool {
	size := len(k.component) + len(k.name) + len(value)
	for other, value := range v.parameters {
		if other != k {
			size += len(other.component) + len(other.name) + len(value)
		}
	}
	return size <= MaxParameters
}

// ClearParameter deletes a parameter, and reports whether there was one.
func (v *VHost) ClearParameter(component, name string) (existed bool, err error) {
	k := parameterKey{component, name}
	err = v.change(fixedMode(exclusive), func() (apply func() error, err error) {
		if _, exists := v.parameters[k]; !exists {
			return nil, nil
		}
		v.logIfDurable(v.defineParameter(opClearParameter, k))
		return func() error {
			existed = true
			delete(v.parameters, k)
			v.applyLimits()
			return nil
		}, nil
	})
	return existed, err
}

// applyLimits puts in force what the parameter of the limits says. The caller holds mu.
func (v *VHost) applyLimits() {
	v.limits = Limits{}
	if value, ok := v.parameters[parameterKey{limitsComponent, limitsName}]; ok {
		v.limits, _ = parseLimits(value) // it was checked
	}
}

func (v *VHost) defineParameter(op string, k parameterKey, value ...amqp.Field) amqp.Table {
	names := define(op, v.name, amqp.Field{Key: fieldComponent, Value: k.component}, amqp.Field{Key: fieldName, Value: k.name})
	return append(names, value...)
}

// parameter takes in the definition of a parameter, or of its end.
func (d *Definitions) parameter(def *definition.Definition) error {
	var k parameterKey
	var err error
	definition.Read(def, fieldComponent, &k.component, &err)
	definition.Read(def, fieldName, &k.name, &err)
	if err != nil || def.Op == opClearParameter {
		delete(d.parameters, k)
		return err
	}
	var value string
	definition.Read(def, fieldValue, &value, &err)
	d.parameters[k] = json.RawMessage(value)
	return err
}
