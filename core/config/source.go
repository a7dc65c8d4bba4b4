package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Kind is a kind of source. Later kinds override earlier ones.
type Kind uint8

// The kinds.
const (
	FromDefault Kind = iota
	FromFile
	FromEnv
	FromFlag
)

// Source is where a value comes from.
type Source struct {
	Kind Kind
	Name string // the file's path, the variable's or the flag's name
	Line int    // in the file, from 1; 0 = the file as a whole
}

func (s Source) String() string {
	switch s.Kind {
	case FromFile:
		if s.Line == 0 {
			return "file " + s.Name
		}
		return "file " + s.Name + ":" + strconv.Itoa(s.Line)
	case FromEnv:
		return "env " + s.Name
	case FromFlag:
		return "flag " + s.Name
	}
	return "default"
}

// Error is one problem of a configuration. Its text is "KEY: VALUE PROBLEM; accepted: RANGE (SOURCE)", without the parts that are
// empty.
type Error struct {
	Key      string
	Value    string // as it was written
	HasValue bool   // whether the problem is about a value
	Problem  string
	Accepted string // "" = not known
	Source   Source
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.Key != "" {
		b.WriteString(e.Key + ": ")
	}
	if e.HasValue {
		fmt.Fprintf(&b, "%q ", shorten(WithoutLogin(e.Value)))
	}
	b.WriteString(e.Problem)
	if e.Accepted != "" {
		b.WriteString("; accepted: " + e.Accepted)
	}
	if e.Source.Kind != FromDefault {
		fmt.Fprintf(&b, " (%s)", e.Source)
	}
	return plainName(b.String())
}

// WithoutLogin returns a URL, or NAME:PASSWORD@HOST, without the name and the password. It returns other texts unchanged. Everything before
// the last @ counts as the login, because the function also handles URLs that cannot be parsed, whose errors are logged.
func WithoutLogin(text string) string {
	_, rest, isURL := strings.Cut(text, "://")
	if !isURL {
		rest = text
	}
	at := strings.LastIndexByte(rest, '@')
	if at < 0 || !isURL && !strings.Contains(rest[:at], ":") {
		return text
	}
	return text[:len(text)-len(rest)] + hidden + rest[at:]
}

// shorten cuts long texts, such as a pasted certificate, for the terminal.
func shorten(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
