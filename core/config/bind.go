package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// bind returns a setting for every field of the struct that into points to, including nested structs. The tags are
//
//	koanf  the name below section; "-" = not a setting
//	doc    the meaning, for the operator
//	live   "true": a reload applies it
//	range, bytes, oneof, kind, accepts   the accepted values: see variable; the range "1.." has no upper end
//
// A map is a section whose keys are listed by entries. An error means that the struct is
// not a valid configuration type, whatever the user writes.
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
		more, err := e.bindField(strings.TrimPrefix(section+"."+name, "."), f.Tag, v.Field(i))
		if err != nil {
			return nil, fmt.Errorf("field %s.%s: %w", v.Type(), f.Name, err)
		}
		settings = append(settings, more...)
	}
	return settings, nil
}

func (e entries) bindField(key string, tag reflect.StructTag, v reflect.Value) ([]*setting, error) {
	doc := tag.Get("doc")
	if val := variable(v, tag); val != nil {
		return []*setting{{key: key, value: val, doc: doc, live: tag.Get("live") == "true"}}, nil
	}
	switch t := v.Type(); {
	case v.Kind() == reflect.Struct:
		return e.bindStruct(key, v)
	case t == reflect.TypeFor[map[string]any]():
		return e.bindOpen(key, doc, v), nil
	case v.Kind() == reflect.Map && t.Key().Kind() == reflect.String && t.Elem().Kind() == reflect.Pointer && t.Elem().Elem().Kind() == reflect.Struct:
		all, err := e.bindMap(key, v)
		if err == nil && len(all) == 0 {
			all, err = example(key, cmp.Or(tag.Get("entry"), "NAME"), doc, v)
		}
		return all, err
	}
	return nil, fmt.Errorf("%s is not a type that a configuration may have", v.Type())
}

// entries returns the keys that the user has set below a section, without the section's name, sorted. nil = the keys in the maps.
type entries func(section string) []string

// bindMap binds a map of structs: each entry is a section.
func (e entries) bindMap(section string, v reflect.Value) ([]*setting, error) {
	var names []string
	if e == nil {
		for _, k := range v.MapKeys() {
			names = append(names, k.String())
		}
		slices.Sort(names)
	} else {
		for _, key := range e(section) {
			name, _, _ := strings.Cut(key, ".")
			names = append(names, name)
		}
		names = slices.Compact(names)
		v.Set(reflect.MakeMap(v.Type()))
	}
	var settings []*setting
	for _, name := range names {
		entry := v.MapIndex(reflect.ValueOf(name))
		if !entry.IsValid() {
			entry = newEntry(v)
			v.SetMapIndex(reflect.ValueOf(name), entry)
		}
		more, err := e.bindStruct(section+"."+name, entry.Elem())
		if err != nil {
			return nil, err
		}
		settings = append(settings, more...)
	}
	return settings, nil
}

// preset is implemented by entries of a map that have defaults.
type preset interface{ preset() }

// newEntry returns an entry for the map v, with its defaults.
func newEntry(v reflect.Value) reflect.Value {
	entry := reflect.New(v.Type().Elem().Elem())
	if p, ok := reflect.TypeAssert[preset](entry); ok {
		p.preset()
	}
	return entry
}

// example returns the settings of an example entry of an empty map. They are only explained.
func example(section, name, doc string, v reflect.Value) ([]*setting, error) {
	all, err := entries(nil).bindStruct(section+"."+name, newEntry(v).Elem())
	return []*setting{{key: section, doc: doc, examples: all}}, err
}

// bindOpen binds a section with arbitrary content.
func (e entries) bindOpen(section, doc string, v reflect.Value) []*setting {
	root, _ := reflect.TypeAssert[map[string]any](v)
	var keys []string
	if e == nil {
		keys = leaves("", root)
		slices.Sort(keys)
	} else {
		keys, root = e(section), map[string]any{}
		v.Set(reflect.ValueOf(root))
	}
	if len(keys) == 0 {
		some := &value{format: func() string { return "" }, accepted: openAccepted}
		return []*setting{{key: section, doc: doc, examples: []*setting{{key: section + ".KEY", value: some}}}}
	}
	settings := make([]*setting, len(keys))
	for i, key := range keys {
		settings[i] = &setting{key: section + "." + key, value: open(root, strings.Split(key, ".")), doc: doc}
	}
	return settings
}

// leaves lists the paths of all values that are not maps.
func leaves(prefix string, m map[string]any) []string {
	var keys []string
	for k, v := range m {
		if inner, ok := v.(map[string]any); ok {
			keys = append(keys, leaves(prefix+k+".", inner)...)
			continue
		}
		keys = append(keys, prefix+k)
	}
	return keys
}

const openAccepted = "text, a number, true, false, or a list of these"

// open is a value of any type in an open section: a string, a json.Number, a bool, or a []any of these. The type of a text without quotes
// depends on its form.
func open(root map[string]any, path []string) *value {
	last := len(path) - 1
	store := func(v any) error {
		m := root
		for _, name := range path[:last] {
			inner, ok := m[name].(map[string]any)
			if !ok {
				inner = map[string]any{}
				m[name] = inner
			}
			m = inner
		}
		m[path[last]] = v
		return nil
	}
	write := func(quote func(string) string) string {
		m := root
		for _, name := range path[:last] {
			m, _ = m[name].(map[string]any)
		}
		if s, ok := m[path[last]].(string); ok {
			return quote(s)
		}
		return toJSON(m[path[last]]) // JSON is also valid YAML
	}
	return &value{
		accepted:  openAccepted,
		set:       func(s string) error { return store(typed(s)) },
		setQuoted: func(s string) error { return store(s) },
		setList: func(items []string) error {
			all := make([]any, len(items))
			for i, item := range items {
				all[i] = typed(item)
			}
			return store(all)
		},
		format: func() string { return write(func(s string) string { return s }) },
		yaml:   func() string { return write(quote) },
	}
}

// typed converts a text according to its form: true, false and numbers as in JSON; everything else is a string.
func typed(s string) any {
	switch {
	case s == "true", s == "false":
		return s == "true"
	case s != "" && strings.IndexByte("-0123456789", s[0]) >= 0 && json.Valid([]byte(s)):
		return json.Number(s)
	}
	return s
}

// show makes settings print config, the struct that a plugin finally uses, instead of the decoded one.
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
