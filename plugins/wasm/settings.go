package wasm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode"

	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
)

// setting is a value of a policy's configuration. Any goroutine may use it.
type setting struct {
	text string
	read atomic.Bool // the module has asked for it
}

// settingsOf flattens a configuration for config_i64 and config_str: texts stay texts,
// other values become JSON, and nested names get dots. If two names become equal, the one
// that contains the dot itself counts. settingsOf returns such names.
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

// unread returns the configuration keys for which the module has not asked, in order. It
// returns none if the module has not passed a trial, or reads the configuration as text.
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

// Options are a policy's settings. The zero value has no configuration, no grants
// and the default fuel.
type Options struct {
	// Config is the policy's configuration: a JSON object, or empty.
	Config json.RawMessage `json:"config,omitempty"`
	// Grants are permissions beyond deciding.
	Grants []string `json:"grants,omitempty"`
	// Fuel is the fuel of a call.
	Fuel Fuel `json:"fuel,omitempty"`
	// OnError decides about messages when the policy fails.
	OnError OnError `json:"on_error,omitempty"`
	// Digest is the required SHA-256 of the module, in hexadecimal, with or without
	// "sha256:" before it; "" = any.
	Digest string `json:"-"`
	// Recompute means that a loaded policy is called about queued messages.
	Recompute bool `json:"-"`
}

// check refuses invalid settings. Its error begins with the key.
func (o *Options) check() error {
	for _, g := range o.Grants {
		if !slices.Contains(abi.Grants(), abi.Grant(g)) {
			return fmt.Errorf("grants: %q is not a grant, expected one of %s", g, words(abi.Grants()))
		}
	}
	if o.Fuel != 0 && (o.Fuel < minFuel || o.Fuel > maxFuel) {
		return fmt.Errorf("fuel: %d is out of range; accepted are default, large, and %d to %d", o.Fuel, minFuel, maxFuel)
	}
	if o.OnError > Reject {
		return fmt.Errorf("on-error: %d is out of range", o.OnError)
	}
	if len(o.Config) > abi.MaxConfig {
		return fmt.Errorf("config: has %d bytes of JSON; accepted are up to %d", len(o.Config), abi.MaxConfig)
	}
	if len(o.Config) == 0 {
		return nil
	}
	if c := bytes.TrimSpace(o.Config); !json.Valid(c) || c[0] != '{' {
		return errors.New("config: is not a JSON object")
	}
	return nil
}

func words[T ~string](list []T) string {
	all := make([]string, len(list))
	for i, w := range list {
		all[i] = string(w)
	}
	return strings.Join(all, ", ")
}

// Fuel is the base fuel of a call, in units of about an instruction; each message of the call adds [FuelPerMessage]. Zero is the default. A
// running call delays the garbage collector, and with it the broker; a unit takes at most a nanosecond.
type Fuel int64

// Amounts of fuel.
const (
	DefaultFuel    Fuel = 1_000_000
	LargeFuel      Fuel = 50_000_000 // for languages with a garbage collector, such as Go
	FuelPerMessage      = 5_000

	minFuel, maxFuel Fuel = 10_000, 1_000_000_000
)

// base returns the amount, or the default instead of zero.
func (f Fuel) base() int64 {
	if f == 0 {
		return int64(DefaultFuel)
	}
	return int64(f)
}

// MarshalText implements [encoding.TextMarshaler].
func (f Fuel) MarshalText() ([]byte, error) {
	switch f {
	case 0, DefaultFuel:
		return []byte("default"), nil
	case LargeFuel:
		return []byte("large"), nil
	}
	return strconv.AppendInt(nil, int64(f), 10), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (f *Fuel) UnmarshalText(b []byte) error {
	switch s := string(b); s {
	case "", "default":
		*f = 0
	case "large":
		*f = LargeFuel
	default:
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || Fuel(n) < minFuel || Fuel(n) > maxFuel {
			return fmt.Errorf("accepted are default, large, and %d to %d", minFuel, maxFuel)
		}
		*f = Fuel(n)
	}
	return nil
}

// OnError decides about messages whose policy fails or is not loaded. It never expires a message early.
type OnError uint8

// The choices.
const (
	Builtin OnError = iota // the lower of the publisher's expiration and the queue's TTL
	Keep                   // no deadline, until the policy is called again
	Reject                 // messages about to be enqueued are refused: their publisher gets a nack
)

var onErrors = [...]string{Builtin: "builtin", Keep: "keep", Reject: "reject"}

func (o OnError) String() string { return onErrors[min(o, Reject)] }

// MarshalText implements [encoding.TextMarshaler].
func (o OnError) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (o *OnError) UnmarshalText(b []byte) error {
	i := slices.Index(onErrors[:], string(b))
	if i < 0 && len(b) > 0 {
		return fmt.Errorf("accepted are %s", strings.Join(onErrors[:], ", "))
	}
	*o = OnError(max(i, 0))
	return nil
}

// Size is a number of bytes, written with a unit: 16MiB.
type Size int64

var units = []struct {
	name  string
	bytes Size
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

func (s Size) String() string {
	for _, u := range units {
		if s != 0 && s%u.bytes == 0 {
			return strconv.FormatInt(int64(s/u.bytes), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// MarshalText implements [encoding.TextMarshaler].
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Size) UnmarshalText(b []byte) error {
	text, unit := strings.TrimSpace(string(b)), Size(1)
	for _, u := range units {
		if number, ok := strings.CutSuffix(text, u.name); ok {
			text, unit = number, u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > int64(maxTotalMemory)/int64(unit) {
		return errors.New("a size is a whole number of bytes, or one followed by KiB, MiB or GiB")
	}
	*s = Size(n) * unit
	return nil
}
