package config

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// bind returns a setting for every field of the struct that into points to,
// nested structs included, named by its koanf tag below section and explained by
// its doc tag, if it has one. A map has a section of its own, in which entries
// says what there is. An error means that the struct cannot be a configuration,
// whatever the user writes.
func bind(section string, into any, entries entries) ([]*setting, error) {
	p := reflect.ValueOf(into)
	if p.Kind() != reflect.Pointer || p.IsNil() || p.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("configuration is a %T, not a pointer to a struct", into)
	}
	return entries.bindStruct(section, p.Elem())
}

func (e entries) bindStruct(section string, v reflect.Value) ([]*setting, error) {
	var settings []*setting
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.IsExported() {
			continue
		}
		name := f.Tag.Get("koanf")
		if name == "-" {
			continue
		}
		if name == "" {
			return nil, fmt.Errorf("field %s.%s has no koanf tag", v.Type(), f.Name)
		}
		more, err := e.bindField(section+"."+name, f.Tag.Get("doc"), v.Field(i))
		if err != nil {
			return nil, fmt.Errorf("field %s.%s: %w", v.Type(), f.Name, err)
		}
		settings = append(settings, more...)
	}
	return settings, nil
}

func (e entries) bindField(key, doc string, v reflect.Value) ([]*setting, error) {
	if val := variable(v); val != nil {
		return []*setting{{key: key, value: val, doc: doc}}, nil
	}
	switch t := v.Type(); {
	case v.Kind() == reflect.Struct:
		return e.bindStruct(key, v)
	case t == reflect.TypeFor[map[string]any]():
		return e.bindOpen(key, doc, v), nil
	case v.Kind() == reflect.Map && t.Key().Kind() == reflect.String && t.Elem().Kind() == reflect.Pointer && t.Elem().Elem().Kind() == reflect.Struct:
		return e.bindMap(key, v)
	}
	return nil, fmt.Errorf("%s is not a type that a configuration may have", v.Type())
}

// variable returns the value behind v, nil when its type is not a single value.
func variable(v reflect.Value) value {
	switch p := v.Addr().Interface().(type) {
	case *time.Duration:
		return &parsed[time.Duration]{p: p, parse: parseDuration, format: formatDuration, accepted: "a duration"}
	case *[]string:
		return list{p}
	case *bool:
		return boolean(p)
	case textual:
		return marshaled{p}
	}
	switch {
	case v.Kind() == reflect.String:
		return word{v}
	case v.CanInt(), v.CanUint(), v.CanFloat():
		return number{v}
	}
	return nil
}

// textual is a plugin's own type with a textual form.
type textual interface {
	encoding.TextMarshaler
	encoding.TextUnmarshaler
}

type marshaled struct{ p textual }

func (m marshaled) Set(s string) error {
	if err := m.p.UnmarshalText([]byte(s)); err != nil {
		return fmt.Errorf("is not understood: %w", err)
	}
	return nil
}

func (m marshaled) YAML() string    { return quote(m.String()) }
func (m marshaled) Accepts() string { return "" }

func (m marshaled) String() string {
	b, err := m.p.MarshalText()
	if err != nil {
		return ""
	}
	return string(b)
}

// word is a string of any named type.
type word struct{ v reflect.Value }

func (w word) Set(s string) error { w.v.SetString(s); return nil }
func (w word) String() string     { return w.v.String() }
func (w word) YAML() string       { return quote(w.String()) }
func (w word) Accepts() string    { return "text" }

// number is a number of any type.
type number struct{ v reflect.Value }

func (n number) Set(s string) error {
	s = strings.TrimSpace(s)
	bits := n.v.Type().Bits()
	switch {
	case n.v.CanInt():
		i, err := strconv.ParseInt(s, 10, bits)
		return n.store(err, func() { n.v.SetInt(i) })
	case n.v.CanUint():
		u, err := strconv.ParseUint(s, 10, bits)
		return n.store(err, func() { n.v.SetUint(u) })
	}
	f, err := strconv.ParseFloat(s, bits)
	return n.store(err, func() { n.v.SetFloat(f) })
}

func (n number) store(err error, set func()) error {
	if errors.Is(err, strconv.ErrRange) {
		return errOutOfRange
	}
	if err != nil {
		return errors.New("is not " + n.kind())
	}
	set()
	return nil
}

func (n number) kind() string {
	if n.v.CanFloat() {
		return "a number"
	}
	return "a whole number"
}

// Accepts tells the range of the type; the plugin may accept less.
func (n number) Accepts() string {
	bits := n.v.Type().Bits()
	switch {
	case n.v.CanInt():
		return fmt.Sprintf("%d to %d", -1<<(bits-1), 1<<(bits-1)-1)
	case n.v.CanUint():
		return fmt.Sprintf("0 to %d", ^uint64(0)>>(64-bits))
	}
	return n.kind()
}

func (n number) String() string {
	switch {
	case n.v.CanInt():
		return strconv.FormatInt(n.v.Int(), 10)
	case n.v.CanUint():
		return strconv.FormatUint(n.v.Uint(), 10)
	}
	return strconv.FormatFloat(n.v.Float(), 'g', -1, n.v.Type().Bits())
}

func (n number) YAML() string { return n.String() }

// show makes settings print what config holds, the struct a plugin ended up
// with, in place of what was decoded.
func show(settings []*setting, section string, config any) {
	v := reflect.Indirect(reflect.ValueOf(config))
	if v.Kind() != reflect.Struct {
		return
	}
	kept := reflect.New(v.Type())
	kept.Elem().Set(v)
	final, err := bind(section, kept.Interface(), nil)
	if err != nil || len(final) != len(settings) {
		return
	}
	for i, s := range settings {
		s.value = final[i].value
	}
}
