package wasm

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"unicode"

	"github.com/curfewmq/curfew/sdk/hook"
)

// setting is a value of a policy's configuration. Any goroutine may use it.
type setting struct {
	text string
	read atomic.Bool // the module has asked for it
}

// settingsOf flattens a configuration for config_i64 and config_str: texts stay texts, other values become JSON, and nested names get dots. If
// two names become equal, the one that contains the dot itself counts. settingsOf returns such names.
func settingsOf(prefix string, m map[string]any, into map[string]*setting) (twice []string) {
	for _, name := range slices.Sorted(maps.Keys(m)) { // "a.b" comes after "a"
		key := prefix + name
		text, ok := m[name].(string)
		if nested, isMap := m[name].(map[string]any); isMap {
			twice = append(twice, settingsOf(key+".", nested, into)...)
			continue
		}
		if !ok {
			text = jsonText(m[name])
		}
		if into[key] != nil {
			twice = append(twice, key)
		}
		into[key] = &setting{text: text}
	}
	return twice
}

// maxAbsent bounds the names that are recorded for hints.
const maxAbsent = 64

// setting returns a value of the configuration, for the module. The name may lie in the guest's memory.
func (v *version) setting(now hook.Instant, name string) (text string, ok bool) {
	s := v.settings[name]
	if s == nil {
		if v.absent != nil && len(v.absent) < maxAbsent && len(name) <= maxHinted {
			v.absent[strings.Clone(name)] = true
		}
		return "", false
	}
	if !s.read.Load() && s.read.CompareAndSwap(false, true) && v.warned {
		v.policy.report.readLater(now, strings.Clone(name))
	}
	return s.text, true
}

// configText returns the configuration in the form in which the guest gets it.
func (v *version) configText() []byte {
	if !v.blank {
		return v.configJSON
	}
	b := bytes.Repeat([]byte(" "), len(v.configJSON))
	b[0], b[len(b)-1] = '{', '}'
	return b
}

// unread returns the configuration keys for which the module has not asked, in order. It returns none if the module has not passed a trial, or
// reads the configuration as text.
func (v *version) unread() []string {
	if v.trial == nil || v.trial.failed != nil || v.trial.readsText {
		return nil
	}
	return unread(v.settings)
}

func unread(settings map[string]*setting) []string {
	var keys []string
	for key, s := range settings {
		if !s.read.Load() {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// maxNamed bounds the keys that warnings name.
const maxNamed = 10

// unreadWarnings returns a warning for each key for which the module has not asked.
func (v *version) unreadWarnings() []string {
	keys := v.unread()
	if len(keys) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(v.trial.absent))
	var all []string
	for i, key := range keys {
		if i == maxNamed {
			return append(all, fmt.Sprintf("config: %d more keys were not read while the module was tried", len(keys)-i))
		}
		text := fmt.Sprintf("config: %s was not read while the module was tried", shortened(key))
		if near := v.policy.host.env.nearest(key, names); near != "" {
			text += "; did you mean " + shortened(near) + "?"
		}
		all = append(all, text)
	}
	return all
}

// twiceWarnings returns a warning for each name that the configuration contains in two ways.
func (v *version) twiceWarnings() (all []string) {
	for i, key := range v.twice {
		if i == maxNamed {
			return append(all, fmt.Sprintf("config: %d more keys are set twice", len(v.twice)-i))
		}
		all = append(all, fmt.Sprintf("config: %s is set twice, in an object and with a dot in its name, which counts", shortened(key)))
	}
	return all
}

// shortened returns a name for messages: printable, and not too long.
func shortened(name string) string {
	const enough = 64
	b := []byte(name)
	if len(b) > enough {
		b = append(b[:enough:enough], "…"...)
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) { // the name may be the module's
			return '\uFFFD'
		}
		return r
	}, printable(b))
}

// nearest returns the candidate that a name was probably meant to be; "" if none.
func (e *Env) nearest(name string, candidates []string) string {
	if e.Nearest == nil || len(name) > maxHinted {
		return ""
	}
	return e.Nearest(name, candidates)
}

// maxHinted is the longest name for which hints are searched, in bytes: comparing two names takes time in proportion to the product of
// their lengths.
const maxHinted = 64
