package config

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// entries lists the keys that the user has below a section, the section's name
// cut off, sorted. nil stands for the ones that the maps hold already.
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
			entry = reflect.New(v.Type().Elem().Elem())
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

// bindOpen binds a section that may hold anything.
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
	settings := make([]*setting, len(keys))
	for i, key := range keys {
		settings[i] = &setting{key: section + "." + key, value: open{root, strings.Split(key, ".")}, doc: doc}
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

// open is a value of any type in an open section: a string, a json.Number, a
// bool, or a []any of these. A text is what it looks like, unless it is quoted.
type open struct {
	root map[string]any
	path []string
}

func (o open) Set(s string) error { return o.store(typed(s)) }

func (o open) SetQuoted(s string) error { return o.store(s) }

func (o open) SetList(items []string) error {
	list := make([]any, len(items))
	for i, item := range items {
		list[i] = typed(item)
	}
	return o.store(list)
}

func (o open) store(v any) error {
	m := o.root
	last := len(o.path) - 1
	for _, name := range o.path[:last] {
		inner, ok := m[name].(map[string]any)
		if !ok {
			inner = map[string]any{}
			m[name] = inner
		}
		m = inner
	}
	m[o.path[last]] = v
	return nil
}

func (o open) value() any {
	m, last := o.root, len(o.path)-1
	for _, name := range o.path[:last] {
		m, _ = m[name].(map[string]any)
	}
	return m[o.path[last]]
}

func (o open) Accepts() string { return "text, a number, true, false, or a list of these" }

func (o open) String() string {
	if s, ok := o.value().(string); ok {
		return s
	}
	return o.YAML()
}

// YAML returns JSON, which is YAML, too; words go without quotes where they can.
func (o open) YAML() string {
	if s, ok := o.value().(string); ok {
		return quote(s)
	}
	b, err := json.Marshal(o.value())
	if err != nil {
		panic(err) // it was made of texts
	}
	return string(b)
}

// typed returns a text as what it looks like: true, false and numbers as JSON
// writes them, and everything else as a string.
func typed(s string) any {
	switch {
	case s == "true", s == "false":
		return s == "true"
	case s != "" && strings.IndexByte("-0123456789", s[0]) >= 0 && json.Valid([]byte(s)):
		return json.Number(s)
	}
	return s
}

// entries implements the type of that name for what the layers say.
func (l *loader) entries(section string) []string {
	l.openEnded = append(l.openEnded, section)
	found := map[string]bool{}
	for _, y := range l.layers {
		prefix := y.name(section) + y.sep
		for _, name := range y.names() {
			if rest, ok := strings.CutPrefix(name, prefix); ok {
				found[y.key(rest, found)] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// key returns the key that the layer's own name stands for. In a variable a dash
// cannot be told from a low line: each part is taken for that of a known key
// which is written like it, and for one with dashes if there is none.
func (y *layer) key(name string, known map[string]bool) string {
	if y.sep == "." {
		return name
	}
	var parts []string
	for part := range strings.SplitSeq(name, y.sep) {
		parts = append(parts, strings.ToLower(strings.ReplaceAll(part, "_", "-")))
		for k := range known {
			if other := strings.Split(k, "."); len(other) >= len(parts) && slices.EqualFunc(other[:len(parts)], parts, alike) {
				copy(parts, other)
			}
		}
	}
	return strings.Join(parts, ".")
}

// alike reports whether two parts of keys are written alike in a variable.
func alike(a, b string) bool { return envName(a) == envName(b) }
