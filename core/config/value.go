package config

import (
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// value is the textual form of the variable behind a key.
type value struct {
	// set parses a text and stores it. Its error continues a sentence that began with the text: "is not a duration".
	set func(text string) error
	// setQuoted stores a text that was in quotes; nil = set.
	setQuoted func(text string) error
	// setList stores a YAML list; nil = the value is no list.
	setList func(items []string) error
	// format returns a text that set reads back.
	format func() string
	// yaml returns a YAML scalar or flow sequence; nil = the text, quoted if necessary.
	yaml     func() string
	accepted string // describes the texts that set accepts
	secret   bool   // errors do not show the text
}

func (v *value) String() string { return v.format() }

// YAML returns the value as a YAML scalar or flow sequence.
func (v *value) YAML() string {
	if v.yaml != nil {
		return v.yaml()
	}
	return quote(v.format())
}

var (
	errOutOfRange    = errors.New("is out of range")
	errNotUnderstood = errors.New("is not understood")
)

// variable returns the value for a field, according to its type and tags; nil if the type is not a single value. The tag accepts describes
// the accepted texts in words, where the other tags are not enough.
func variable(v reflect.Value, tag reflect.StructTag) *value {
	val := single(v, tag)
	if words := tag.Get("accepts"); val != nil && words != "" {
		val.accepted = words
	}
	return val
}

func single(v reflect.Value, tag reflect.StructTag) *value {
	bounds := tag.Get("range")
	switch p := v.Addr().Interface().(type) {
	case *time.Duration:
		parse := ParseDuration
		if tag.Get("kind") == "seconds" {
			parse = parseSeconds
		}
		return within(p, bounds, parse, FormatDuration, "a duration such as 90s, 1h30m or 7d")
	case *Secret:
		return secret(p)
	case *Size:
		return within(p, bounds, parseSize, Size.String, "a size")
	case *Optional[float64]:
		return optional(p, bounds, parseShare, formatShare)
	case *Optional[time.Duration]:
		return optional(p, bounds, ParseDuration, FormatDuration)
	case *Watermark:
		return parsed(p, parseWatermark, Watermark.String, watermarkAccepted)
	case *Reserve:
		return parsed(p, parseReserve, Reserve.String, reserveAccepted)
	case *slog.Level:
		return parsed(p, parseLevel, formatLevel, "debug, info, warn, error")
	case *bool:
		return parsed(p, parseBool, strconv.FormatBool, "true or false")
	case *[]string:
		switch tag.Get("kind") {
		case "hosts":
			return list(p, checkHosts, "a list such as [broker.example.com], or a.example.com,b.example.com")
		case "nodes":
			return list(p, checkNodes, nodesAccepted)
		}
		return list(p, nil, "a list such as [a, b], or a,b")
	case *[]netip.Prefix:
		return prefixes(p)
	case textual:
		return marshaled(p, tag)
	}
	switch {
	case v.Kind() == reflect.String:
		return text(v, tag)
	case v.CanInt(), v.CanUint(), v.CanFloat():
		return number(v, bounds)
	}
	return nil
}

// scalar is a value with a parser, and with a textual form that needs no quotes in YAML.
func scalar[T any](get func() T, put func(T), parse func(string) (T, error), format func(T) string, accepted string) *value {
	text := func() string { return format(get()) }
	return &value{format: text, yaml: text, accepted: accepted, set: func(s string) error {
		t, err := parse(strings.TrimSpace(s))
		if err == nil {
			put(t)
		}
		return err
	}}
}

func parsed[T any](p *T, parse func(string) (T, error), format func(T) string, accepted string) *value {
	return scalar(func() T { return *p }, func(t T) { *p = t }, parse, format, accepted)
}

// within is a parsed value within bounds such as "1s..10m"; no bounds = any value.
func within[T cmp.Ordered](p *T, bounds string, parse func(string) (T, error), format func(T) string, accepted string) *value {
	if bounds != "" {
		parse, accepted = bounded(bounds, parse, format)
	}
	return parsed(p, parse, format, accepted)
}

func bounded[T cmp.Ordered](bounds string, parse func(string) (T, error), format func(T) string) (check func(string) (T, error), accepted string) {
	from, to, _ := strings.Cut(bounds, "..")
	low, err := parse(from)
	if err == nil && to == "" {
		return func(s string) (T, error) {
			t, err := parse(s)
			if err == nil && t < low {
				err = errOutOfRange
			}
			return t, err
		}, format(low) + " and above"
	}
	high, err2 := parse(to)
	if err := errors.Join(err, err2); err != nil {
		panic(fmt.Errorf("the range %q %w", bounds, err)) // the range is written in a tag
	}
	return func(s string) (T, error) {
		t, err := parse(s)
		if err == nil && (t < low || t > high) {
			err = errOutOfRange
		}
		return t, err
	}, format(low) + " to " + format(high)
}

// leftOpen is the text for a value that is left open.
const leftOpen = "auto"

// optional is a value within bounds, or no value.
func optional[T cmp.Ordered](p *Optional[T], bounds string, parse func(string) (T, error), format func(T) string) *value {
	parse, accepted := bounded(bounds, parse, format)
	return parsed(p, func(s string) (Optional[T], error) {
		if s == leftOpen {
			return Optional[T]{}, nil
		}
		v, err := parse(s)
		return Optional[T]{v, true}, err
	}, func(o Optional[T]) string {
		if !o.Given {
			return leftOpen
		}
		return format(o.Value)
	}, leftOpen+", or "+accepted)
}

// kinds are the kinds of text that have a check of their own.
var kinds = map[string]struct {
	check    func(string) error
	accepted string
}{
	"":         {nil, "text"},
	"path":     {nil, "the path of a file"},
	"address":  {checkAddress, "host:port, :port for all interfaces, or off"},
	"endpoint": {checkEndpoint, "host:port, or a URL such as http://collector:4318"},
	"node":     {checkNode, "host:port, as in cluster.nodes"},

	"node-name": {checkNodeName, "a name such as rabbit, or rabbit@host, of up to 255 bytes without spaces"},

	"node-listen": {checkNodeListen, "host:port, or :port for all interfaces"},

	"trace-url": {checkTraceURL, "an http or https URL with {trace_id} in its path, query or fragment, such as https://tracing.example.com/trace/{trace_id}, of up to 2048 bytes"},
}

// text is a string of any named type. Its tags describe the accepted texts: a kind, a choice or a range of lengths.
func text(v reflect.Value, tag reflect.StructTag) *value {
	kind := kinds[tag.Get("kind")]
	check, accepted := kind.check, kind.accepted
	if choices := strings.Fields(tag.Get("oneof")); len(choices) > 0 {
		accepted = strings.Join(choices, ", ")
		check = func(s string) error {
			if !slices.Contains(choices, s) {
				return errors.New("is not a choice")
			}
			return nil
		}
	}
	if low, most, ok := strings.Cut(tag.Get("bytes"), ".."); ok {
		check, accepted = checkLength(low, most), low+" to "+most+" bytes"
		if low == "0" {
			accepted = "up to " + most + " bytes"
		}
	}
	off := tag.Get("kind") == "address" // what the text "off" says
	return &value{accepted: accepted, set: func(s string) error {
		if off && s == "off" {
			s = ""
		}
		if check != nil {
			if err := check(s); err != nil {
				return err
			}
		}
		v.SetString(s)
		return nil
	}, format: func() string {
		if off && v.String() == "" {
			return "off"
		}
		return v.String()
	}}
}

func checkLength(low, most string) func(string) error {
	return func(s string) error {
		if s == "" && low != "0" {
			return errors.New("is empty")
		}
		if n, err := strconv.Atoi(most); err != nil || len(s) > n {
			return fmt.Errorf("has %d bytes", len(s))
		}
		return nil
	}
}

// textual is a plugin's own type that has a textual form.
type textual interface {
	encoding.TextMarshaler
	encoding.TextUnmarshaler
}

func marshaled(p textual, tag reflect.StructTag) *value {
	return &value{set: func(s string) error {
		switch err := p.UnmarshalText([]byte(s)); {
		case err == nil:
			return nil
		case tag.Get("accepts") != "": // which says the same
			return errNotUnderstood
		default:
			return fmt.Errorf("%w: %w", errNotUnderstood, err)
		}
	}, format: func() string {
		b, err := p.MarshalText()
		if err != nil {
			return ""
		}
		return string(b)
	}}
}

// number is a number of any type. Without bounds it accepts every value of the type; a plugin may accept less.
func number(v reflect.Value, bounds string) *value {
	bits := v.Type().Bits()
	switch {
	case v.CanInt() && bounds == "" && bits == 64:
		return scalar(v.Int, v.SetInt, parseInt, formatInt, "a whole number")
	case v.CanInt():
		parse, accepted := bounded(cmp.Or(bounds, fmt.Sprintf("%d..%d", -1<<(bits-1), 1<<(bits-1)-1)), parseInt, formatInt)
		return scalar(v.Int, v.SetInt, parse, formatInt, accepted)
	case v.CanUint() && bounds == "" && bits == 64:
		return scalar(v.Uint, v.SetUint, parseUint, formatUint, "a whole number, 0 and above")
	case v.CanUint():
		parse, accepted := bounded(cmp.Or(bounds, fmt.Sprintf("0..%d", ^uint64(0)>>(64-bits))), parseUint, formatUint)
		return scalar(v.Uint, v.SetUint, parse, formatUint, accepted)
	}
	parse := func(s string) (float64, error) {
		f, err := strconv.ParseFloat(s, bits)
		return f, numberError(err, "a number")
	}
	return scalar(v.Float, v.SetFloat, parse, func(f float64) string { return strconv.FormatFloat(f, 'g', -1, bits) }, "a number")
}

func parseInt(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, numberError(err, "a whole number")
}

func parseUint(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	return n, numberError(err, "a whole number")
}

func numberError(err error, kind string) error {
	switch {
	case errors.Is(err, strconv.ErrRange):
		return errOutOfRange
	case err != nil:
		return errors.New("is not " + kind)
	}
	return nil
}

func formatInt(n int64) string   { return strconv.FormatInt(n, 10) }
func formatUint(n uint64) string { return strconv.FormatUint(n, 10) }

// list is a list of words, which check may change. As a single text, the words are separated by commas.
func list(p *[]string, check func(words []string) error, accepted string) *value {
	setList := func(items []string) error {
		words := make([]string, len(items))
		for i, item := range items {
			words[i] = strings.TrimSpace(item)
			if words[i] == "" {
				return errors.New("has an empty item")
			}
			if strings.Contains(words[i], ",") {
				return fmt.Errorf("has a comma in the item %q", item)
			}
		}
		if check != nil {
			if err := check(words); err != nil {
				return err
			}
		}
		*p = words
		return nil
	}
	set := func(s string) error {
		s = strings.TrimSpace(s)
		if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") { // as in a file
			s = strings.TrimSpace(s[1 : len(s)-1])
		}
		if s == "" {
			return setList(nil)
		}
		return setList(strings.Split(s, ","))
	}
	return &value{set: set, setList: setList, accepted: accepted, format: func() string { return strings.Join(*p, ",") }, yaml: func() string {
		items := make([]string, len(*p))
		for i, item := range *p {
			items[i] = quote(item)
		}
		return "[" + strings.Join(items, ", ") + "]"
	}}
}

// plain matches strings that every YAML reader takes for a string; words like "no" are not among them.
var (
	plain    = regexp.MustCompile(`^(\.{0,2}/)?[A-Za-z][A-Za-z0-9._/-]*$`)
	reserved = regexp.MustCompile(`(?i)^(y|n|yes|no|on|off|true|false|null)$`)
)

// quote returns s as a YAML scalar: JSON strings are valid YAML.
func quote(s string) string {
	if plain.MatchString(s) && !reserved.MatchString(s) {
		return s
	}
	return toJSON(s)
}

func toJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot happen: it contains only texts
	}
	return string(b)
}
