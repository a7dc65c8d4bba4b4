package config

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// document is a koanf parser for YAML that keeps the line of every key and the spelling of scalars: 4.10 stays "4.10", and the key
// decides whether it is a number. Leaves are string, quoted, []string or nil.
type document struct {
	lines    map[string]int
	problems []problem
}

// quoted is a text that was in quotes. It is never a number.
type quoted string

// problem is a fault in the file's structure, as opposed to one in a value.
type problem struct {
	key  string
	line int
	text string
}

// Unmarshal returns the document as nested maps. It omits keys with faults, and adds the faults to d.problems.
func (d *document) Unmarshal(b []byte) (map[string]any, error) {
	d.lines = map[string]int{}
	if err := foreign(b); err != nil {
		return nil, err
	}
	dec := yaml.NewDecoder(strings.NewReader(string(b)))
	var root yaml.Node
	if err := dec.Decode(&root); errors.Is(err, io.EOF) {
		return map[string]any{}, nil
	} else if err != nil {
		return nil, notYAML(err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("holds more than one YAML document")
	}
	top := root.Content[0]
	if top.Kind == yaml.MappingNode {
		return d.section("", top), nil
	}
	if top.Tag == "!!null" {
		return map[string]any{}, nil
	}
	return nil, errors.New("is not a YAML mapping of sections, such as limits and plugins")
}

// Marshal completes koanf's interface. Configurations are printed by [Config.Print], which knows the sources.
func (d *document) Marshal(map[string]any) ([]byte, error) { return nil, errors.ErrUnsupported }

// anchor matches a parser error that shows a value, which may be a password.
var anchor = regexp.MustCompile(`(?s)unknown anchor '.*' referenced`)

func notYAML(err error) error {
	return fmt.Errorf("is not valid YAML: %s", anchor.ReplaceAllString(strings.TrimPrefix(err.Error(), "yaml: "), "unknown alias: a text that begins with * needs quotes"))
}

func (d *document) section(prefix string, n *yaml.Node) map[string]any {
	m := map[string]any{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		name := k.Value
		if choosesNames(prefix) {
			name = keyPart(name)
		}
		key := prefix + name
		if k.Kind != yaml.ScalarNode || k.Tag == "!!merge" {
			d.refuse(prefix+"<key>", k, "is not a plain key")
			continue
		}
		if strings.Contains(k.Value, dot) {
			d.refuse(prefix+"<key>", k, "has a NUL")
			continue
		}
		if first, twice := d.lines[key]; twice {
			d.refuse(key, k, fmt.Sprintf("is given twice, on line %d too", first))
			continue
		}
		d.lines[key] = k.Line
		if v, ok := d.leaf(key, n.Content[i+1]); ok {
			m[name] = v
		}
	}
	return m
}

// choosesNames reports whether the keys of a section are names of users or vhosts. Dots are part of such names.
func choosesNames(prefix string) bool {
	rest, ok := strings.CutPrefix(prefix, usersSection+".")
	return ok && (rest == "" || strings.HasSuffix(rest, ".permissions.") && strings.Count(rest, ".") == 2)
}

func (d *document) leaf(key string, n *yaml.Node) (v any, ok bool) {
	switch {
	case n.Kind == yaml.MappingNode:
		return d.section(key+".", n), true
	case n.Kind == yaml.SequenceNode:
		return d.list(key, n)
	case n.Kind == yaml.AliasNode:
		d.refuse(key, n, "is a YAML alias, which is not supported")
		return nil, false
	case n.Tag == "!!null":
		return nil, true
	}
	if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		return quoted(n.Value), true
	}
	return n.Value, true
}

func (d *document) list(key string, n *yaml.Node) (v any, ok bool) {
	items := make([]string, 0, len(n.Content))
	for _, item := range n.Content {
		if item.Kind != yaml.ScalarNode {
			d.refuse(key, item, "is a list that contains something other than words")
			return nil, false
		}
		items = append(items, item.Value)
	}
	return items, true
}

func (d *document) refuse(key string, n *yaml.Node, text string) {
	d.problems = append(d.problems, problem{key: key, line: n.Line, text: text})
}
