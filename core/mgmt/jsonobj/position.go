package jsonobj

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// source is the JSON of an object that was parsed. It is read again once something is wrong
// with a member, to say where that is. It belongs to one goroutine.
type source struct {
	text  []byte
	lists map[string][]int // where the elements of the object's lists begin; nil until something is wrong with one
}

// path leads to a value: names of members, and indexes of lists.
type path []any

// to returns the path of something in the value. The steps are shared, and never changed.
func (p path) to(steps ...any) path { return append(slices.Clip(p), steps...) }

// String returns the path as people write it: queues[3].arguments.x-expires.
func (p path) String() string {
	var b strings.Builder
	for _, step := range p {
		if i, ok := step.(int); ok {
			fmt.Fprintf(&b, "[%d]", i)
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		fmt.Fprintf(&b, "%.80s", step)
	}
	return b.String()
}

// where returns the path and the position of a member: its name's if that is wrong, else
// its value's. Without the source it returns the path.
func (s *source) where(p path, name bool) string {
	if s == nil {
		return p.String()
	}
	offset, ok := s.find(p, name)
	if !ok { // the value was made from another one
		return p.String()
	}
	return p.String() + ": " + position(s.text, offset)
}

// position returns the line and the column of a byte in a text, from 1 on, as editors count them.
func position(text []byte, offset int) string {
	before := text[:min(max(offset, 0), len(text))]
	line := bytes.LastIndexByte(before, '\n') + 1
	return fmt.Sprintf("line %d, column %d", bytes.Count(before, []byte("\n"))+1, utf8.RuneCount(before[line:])+1)
}

// find returns where the value at the end of a path begins or, with name, the name that it
// has. Of members with one name the last counts.
func (s *source) find(p path, name bool) (offset int, ok bool) {
	from := 0
	if list, index, isElement := p.element(); isElement {
		begins := s.elements(list)
		if index >= len(begins) {
			return 0, false
		}
		from, p = begins[index], p[2:]
	}
	f := newFinder(s.text[from:])
	f.want, f.name = p, name
	err := f.value(0, true)
	return from + f.at, err == nil && f.at >= 0
}

// element returns the element of one of the object's lists that a path leads to, or into.
func (p path) element() (list string, index int, ok bool) {
	if len(p) < 2 {
		return "", 0, false
	}
	list, isMember := p[0].(string)
	index, isElement := p[1].(int)
	return list, index, isMember && isElement
}

// elements returns where the elements of a list begin. It reads the JSON once, because many
// elements of a file may be wrong.
func (s *source) elements(list string) []int {
	if s.lists == nil {
		s.lists = map[string][]int{}
		f := newFinder(s.text)
		if f.lists(s.lists) != nil { // the JSON was parsed, so it is valid
			clear(s.lists)
		}
	}
	return s.lists[list]
}

// finder walks through JSON that is valid, and nests as deep as Parse allows.
type finder struct {
	text    []byte
	decoder *json.Decoder
	want    path
	name    bool
	at      int // -1 = not found yet
}

func newFinder(text []byte) *finder {
	f := &finder{text: text, decoder: json.NewDecoder(bytes.NewReader(text)), at: -1}
	f.decoder.UseNumber()
	return f
}

// next returns where the next token begins.
func (f *finder) next() int {
	i := int(f.decoder.InputOffset())
	for i < len(f.text) && strings.IndexByte(" \t\r\n,:", f.text[i]) >= 0 {
		i++
	}
	return i
}

// value walks through a value. matched is how many steps of the path led to it, if on is true.
func (f *finder) value(matched int, on bool) error {
	if on && matched == len(f.want) {
		f.at = f.next()
	}
	token, err := f.decoder.Token()
	if err != nil {
		return err
	}
	switch token {
	case json.Delim('{'):
		return f.members(matched, on)
	case json.Delim('['):
		return f.elements(matched, on)
	}
	return nil
}

func (f *finder) members(matched int, on bool) error {
	for f.decoder.More() {
		begins := f.next()
		key, err := f.decoder.Token()
		if err != nil {
			return err
		}
		here := on && matched < len(f.want) && f.want[matched] == any(key)
		if here {
			f.at = -1 // an earlier member of that name does not count
		}
		if err := f.value(matched+1, here); err != nil {
			return err
		}
		if here && f.name && matched+1 == len(f.want) {
			f.at = begins
		}
	}
	_, err := f.decoder.Token() // }
	return err
}

func (f *finder) elements(matched int, on bool) error {
	for i := 0; f.decoder.More(); i++ {
		if err := f.value(matched+1, on && matched < len(f.want) && f.want[matched] == any(i)); err != nil {
			return err
		}
	}
	_, err := f.decoder.Token() // ]
	return err
}

// lists notes where the elements of an object's lists begin.
func (f *finder) lists(all map[string][]int) error {
	if token, err := f.decoder.Token(); err != nil || token != json.Delim('{') {
		return err
	}
	for f.decoder.More() {
		token, err := f.decoder.Token()
		if err != nil {
			return err
		}
		key, _ := token.(string)
		delete(all, key) // an earlier member of that name does not count
		if i := f.next(); i == len(f.text) || f.text[i] != '[' {
			if err := f.value(0, false); err != nil {
				return err
			}
			continue
		}
		if all[key], err = f.begins(); err != nil {
			return err
		}
	}
	return nil
}

// begins returns where the elements of a list begin.
func (f *finder) begins() (all []int, err error) {
	if _, err := f.decoder.Token(); err != nil { // [
		return nil, err
	}
	for f.decoder.More() {
		all = append(all, f.next())
		if err := f.value(0, false); err != nil {
			return nil, err
		}
	}
	_, err = f.decoder.Token() // ]
	return all, err
}
