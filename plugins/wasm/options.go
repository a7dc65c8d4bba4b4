package wasm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/curfewmq/curfew/sdk/abi"
)

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
