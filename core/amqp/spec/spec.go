// Package spec holds the AMQP 0-9-1 protocol as a table and generates Go code from it.
//
// The table (protocol.table) is the single definition of classes, methods, fields, content properties and reply codes.
// [Load] reads it, [Generate] turns it into the file methods_gen.go of package amqp, and the command in gen
// runs both. The broker itself does not import this package.
package spec

import (
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Protocol is the whole table, in the order it was written.
type Protocol struct {
	Classes []Class
	Replies []Reply
}

// Class is an AMQP class. Properties, in flag order, is empty for classes without content.
type Class struct {
	Name       string
	ID         uint16
	Methods    []Method
	Properties []Field
}

// Method is one method of a class. Sync means that its sender waits for an answer, Content that content frames follow.
type Method struct {
	Name    string
	ID      uint16
	Sync    bool
	Content bool
	Fields  []Field
}

// Field is an argument of a method or a content property.
type Field struct {
	Name string
	Type Type
}

// Reply is a reply code. Soft closes the channel, Hard the connection, neither is not an error.
type Reply struct {
	Name string
	Code uint16
	Soft bool
	Hard bool
}

// Type is a field type of the protocol [AMQP 4.2.1].
type Type string

// The field types.
const (
	Bit       Type = "bit"
	Octet     Type = "octet"
	Short     Type = "short"
	Long      Type = "long"
	LongLong  Type = "longlong"
	ShortStr  Type = "shortstr"
	LongStr   Type = "longstr"
	Timestamp Type = "timestamp"
	Table     Type = "table"
)

func (t Type) known() bool {
	switch t {
	case Bit, Octet, Short, Long, LongLong, ShortStr, LongStr, Timestamp, Table:
		return true
	}
	return false
}

//go:embed protocol.table
var source string

// Load reads the protocol table that is part of this package.
func Load() (Protocol, error) { return Parse(source) }

// Parse reads a protocol table. It stops at the first mistake; the error names the line.
func Parse(text string) (Protocol, error) {
	var p Protocol
	for i, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if err := p.line(words); err != nil {
			return Protocol{}, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return p, nil
}

func (p *Protocol) line(words []string) error {
	if len(words) < 2 {
		return fmt.Errorf("%q stands alone", words[0])
	}
	switch words[0] {
	case "class":
		return p.class(words[1:])
	case "reply":
		return p.reply(words[1:])
	}
	if len(p.Classes) == 0 {
		return errors.New("method or property before the first class")
	}
	c := &p.Classes[len(p.Classes)-1]
	if words[0] == "property" {
		return c.property(words[1:])
	}
	return c.method(words)
}

func (p *Protocol) class(words []string) error {
	if len(words) != 2 {
		return errors.New("a class is a name and an id")
	}
	id, err := number(words[1])
	if err != nil {
		return err
	}
	for _, c := range p.Classes {
		if c.ID == id || c.Name == words[0] {
			return fmt.Errorf("class %s %d is there already", c.Name, c.ID)
		}
	}
	p.Classes = append(p.Classes, Class{Name: words[0], ID: id})
	return nil
}

func (p *Protocol) reply(words []string) error {
	code, err := number(words[0])
	if err != nil {
		return err
	}
	if len(words) < 2 || len(words) > 3 {
		return errors.New("a reply is a code, a name and perhaps soft or hard")
	}
	r := Reply{Name: words[1], Code: code}
	if len(words) == 3 {
		r.Soft, r.Hard = words[2] == "soft", words[2] == "hard"
		if !r.Soft && !r.Hard {
			return fmt.Errorf("reply %d is %q, neither soft nor hard", code, words[2])
		}
	}
	p.Replies = append(p.Replies, r)
	return nil
}

func (c *Class) property(words []string) error {
	fields, err := fields(words)
	if err != nil {
		return err
	}
	c.Properties = append(c.Properties, fields...)
	return nil
}

func (c *Class) method(words []string) error {
	id, err := number(words[0])
	if err != nil {
		return err
	}
	m := Method{Name: words[1], ID: id}
	for _, other := range c.Methods {
		if other.ID == m.ID || other.Name == m.Name {
			return fmt.Errorf("method %s %d is there already", other.Name, other.ID)
		}
	}
	rest := words[2:]
	for ; len(rest) > 0 && !strings.Contains(rest[0], ":"); rest = rest[1:] {
		switch rest[0] {
		case "sync":
			m.Sync = true
		case "content":
			m.Content = true
		default:
			return fmt.Errorf("method %s is %q, neither sync nor content", m.Name, rest[0])
		}
	}
	if m.Fields, err = fields(rest); err != nil {
		return fmt.Errorf("method %s: %w", m.Name, err)
	}
	c.Methods = append(c.Methods, m)
	return nil
}

func fields(words []string) ([]Field, error) {
	var out []Field
	for _, w := range words {
		name, kind, _ := strings.Cut(w, ":")
		if name == "" || !Type(kind).known() {
			return nil, fmt.Errorf("field %q is not NAME:TYPE with a known type", w)
		}
		out = append(out, Field{Name: name, Type: Type(kind)})
	}
	return out, nil
}

func number(word string) (uint16, error) {
	n, err := strconv.ParseUint(word, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("number %q is not in 0..65535", word)
	}
	return uint16(n), nil
}
