package jsonobj

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// source is the JSON that a value was parsed from. It is read again once something is wrong with a member, to say where that is.
type source []byte

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

// where returns the path and the position of a member: its name's if that is wrong, else its value's. Without the source it returns the path.
func (s source) where(p path, name bool) string {
	if s == nil {
		return p.String()
	}
	offset, ok := s.find(p, name)
	if !ok { // a value that somebody made of another one
		return p.String()
	}
	return p.String() + ": " + position(s, offset)
}

// position returns the line and the column of a byte in a text, from 1 on, as editors count them.
func position(text []byte, offset int) string {
	before := text[:min(max(offset, 0), len(text))]
	line := bytes.LastIndexByte(before, '\n') + 1
	return fmt.Sprintf("line %d, column %d", bytes.Count(before, []byte("\n"))+1, utf8.RuneCount(before[line:])+1)
}

// find returns where the value at the end of a path begins or, with name, the name that it has. Of members with one name the last counts.
func (s source) find(p path, name bool) (offset int, ok bool) {
	f := finder{source: s, decoder: json.NewDecoder(bytes.NewReader(s)), want: p, name: name, at: -1}
	f.decoder.UseNumber()
	err := f.value(0, true)
	return f.at, err == nil && f.at >= 0
}

// finder walks through JSON that is valid, and nests as deep as Parse allows.
type finder struct {
	source
	decoder *json.Decoder
	want    path
	name    bool
	at      int // -1 = not found yet
}

// next returns where the next token begins.
func (f *finder) next() int {
	i := int(f.decoder.InputOffset())
	for i < len(f.source) && strings.IndexByte(" \t\r\n,:", f.source[i]) >= 0 {
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
