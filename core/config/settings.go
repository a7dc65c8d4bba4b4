package config

import (
	"slices"
	"strings"
	"unicode"
)

// setting is one key: its meaning, its value, and the source that set it last.
type setting struct {
	key    string
	value  *value
	doc    string // for the operator, one sentence
	live   bool   // a reload applies it; other settings need a restart
	source Source
	// examples are the settings of an example entry, if the key is an empty map; nil: this is a setting.
	examples []*setting
}

// only returns the settings without examples.
func only(all []*setting) []*setting {
	return slices.DeleteFunc(slices.Clone(all), func(s *setting) bool { return s.examples != nil })
}

// Keys that the user chooses, such as users' names, may contain dots. These are [dot] while the names are parts of
// keys.
const dot = "\x00"

// plainName returns the name behind a part of a key.
func plainName(part string) string { return strings.ReplaceAll(part, dot, ".") }

// keyPart is the inverse of [plainName].
func keyPart(name string) string { return strings.ReplaceAll(name, ".", dot) }

// envName returns the environment variable that sets a key: two underscores between parts, and one for every character that names of
// variables cannot contain.
func envName(key string) string {
	var b strings.Builder
	b.WriteString(envPrefix)
	for _, r := range key {
		switch {
		case r == '.':
			b.WriteString("__")
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			b.WriteRune(unicode.ToUpper(r))
		default:
			b.WriteByte('_')
		}
	}
	return b.String()
}

const envPrefix = "CURFEW_"
