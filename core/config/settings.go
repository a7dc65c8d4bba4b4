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
	live   bool   // a reload applies it; the others need a restart
	source Source
	// examples are the settings that an entry of the empty map at key would have; nil: this is a setting.
	examples []*setting
}

// only returns the settings without the examples.
func only(all []*setting) []*setting {
	return slices.DeleteFunc(slices.Clone(all), func(s *setting) bool { return s.examples != nil })
}

// The names of the keys that a user chooses, such as those of users, may have dots in them. These are [dot] while they are parts of
// keys.
const dot = "\x00"

// plainName returns the name that is a part of a key.
func plainName(part string) string { return strings.ReplaceAll(part, dot, ".") }

// keyPart is the inverse of [plainName].
func keyPart(name string) string { return strings.ReplaceAll(name, ".", dot) }

// envName returns the environment variable that sets key: two underscores between its parts, and one for everything that names of
// variables cannot have.
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
