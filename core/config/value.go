package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// value is a typed variable behind a key.
type value interface {
	// Set parses text and stores it. Its error continues a sentence that began
	// with the text: "is not a duration".
	Set(text string) error
	// String returns what Set reads back.
	String() string
	// Accepts tells which texts Set takes.
	Accepts() string
	// YAML returns the value as a YAML scalar or flow sequence.
	YAML() string
}

// lister is a value that may also be written as a YAML list.
type lister interface{ SetList(items []string) error }

var errOutOfRange = errors.New("is out of range")

// parsed is a value with a parser of its own, and a textual form that YAML
// needs no quotes for.
type parsed[T any] struct {
	p        *T
	parse    func(string) (T, error)
	format   func(T) string
	accepted string
}

func (v *parsed[T]) Set(s string) error {
	t, err := v.parse(strings.TrimSpace(s))
	if err != nil {
		return err
	}
	*v.p = t
	return nil
}

func (v *parsed[T]) String() string  { return v.format(*v.p) }
func (v *parsed[T]) YAML() string    { return v.format(*v.p) }
func (v *parsed[T]) Accepts() string { return v.accepted }

// between is a parsed value from low to high.
func between[T cmp.Ordered](p *T, low, high T, parse func(string) (T, error), format func(T) string) *parsed[T] {
	return &parsed[T]{
		p: p, format: format, accepted: format(low) + " to " + format(high),
		parse: func(s string) (T, error) {
			t, err := parse(s)
			if err == nil && (t < low || t > high) {
				err = errOutOfRange
			}
			return t, err
		},
	}
}

func whole(p *int, low, high int) value { return between(p, low, high, parseWhole, strconv.Itoa) }

func size(p *Size, low, high Size) value { return between(p, low, high, ParseSize, Size.String) }

func duration(p *time.Duration, low, high time.Duration) value {
	return between(p, low, high, parseDuration, formatDuration)
}

// seconds is a duration that AMQP carries in whole seconds.
func seconds(p *time.Duration, low, high time.Duration) value {
	parse := func(s string) (time.Duration, error) {
		d, err := parseDuration(s)
		if err == nil && d%time.Second != 0 {
			err = errors.New("is not in whole seconds")
		}
		return d, err
	}
	return between(p, low, high, parse, formatDuration)
}

func boolean(p *bool) value {
	return &parsed[bool]{p: p, parse: parseBool, format: strconv.FormatBool, accepted: "true or false"}
}

func level(p *slog.Level) value {
	format := func(l slog.Level) string { return strings.ToLower(l.String()) }
	levels := []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}
	return &parsed[slog.Level]{
		p: p, format: format, accepted: "debug, info, warn, error",
		parse: func(s string) (slog.Level, error) {
			i := slices.IndexFunc(levels, func(l slog.Level) bool { return format(l) == s })
			if i < 0 {
				return 0, errors.New("is not a log level")
			}
			return levels[i], nil
		},
	}
}

func parseWhole(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if errors.Is(err, strconv.ErrRange) {
		return 0, errOutOfRange
	}
	if err != nil {
		return 0, errors.New("is not a whole number")
	}
	return n, nil
}

func parseBool(s string) (bool, error) {
	switch s {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, errors.New("is not a truth value")
}

func parseDuration(s string) (time.Duration, error) {
	if d, err := time.ParseDuration(s); err == nil {
		return d, nil
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return 0, fmt.Errorf("is a duration without a unit (%ss, %[1]sms, %[1]sm or %[1]sh?)", s)
	}
	return 0, errors.New("is not a duration such as 10s, 500ms or 1h30m")
}

// formatDuration is Duration.String without the zeros at its end: "30m", not
// "30m0s".
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// chars is a string that check lets pass; nil lets everything pass.
type chars struct {
	p        *string
	check    func(string) error
	accepted string
}

func (v *chars) Set(s string) error {
	if v.check != nil {
		if err := v.check(s); err != nil {
			return err
		}
	}
	*v.p = s
	return nil
}

func (v *chars) String() string  { return *v.p }
func (v *chars) YAML() string    { return quote(*v.p) }
func (v *chars) Accepts() string { return v.accepted }

// text is a string of 1 to most bytes.
func text(p *string, most int) value {
	check := func(s string) error {
		if s == "" {
			return errors.New("is empty")
		}
		return notLonger(s, most)
	}
	return &chars{p: p, check: check, accepted: fmt.Sprintf("1 to %d bytes", most)}
}

// optionalText is a string of at most most bytes.
func optionalText(p *string, most int) value {
	check := func(s string) error { return notLonger(s, most) }
	return &chars{p: p, check: check, accepted: fmt.Sprintf("up to %d bytes", most)}
}

func notLonger(s string, most int) error {
	if len(s) > most {
		return fmt.Errorf("has %d bytes", len(s))
	}
	return nil
}

// path is a file name; "" is none.
func path(p *string) value {
	return &chars{p: p, accepted: "the path of a file"}
}

// choice is a string that is one of a few.
type choice[T ~string] struct {
	p       *T
	choices []T
}

func oneOf[T ~string](p *T, choices ...T) value { return choice[T]{p, choices} }

func (v choice[T]) Set(s string) error {
	if !slices.Contains(v.choices, T(s)) {
		return errors.New("is not a choice")
	}
	*v.p = T(s)
	return nil
}

func (v choice[T]) String() string { return string(*v.p) }
func (v choice[T]) YAML() string   { return quote(string(*v.p)) }

func (v choice[T]) Accepts() string {
	words := make([]string, len(v.choices))
	for i, c := range v.choices {
		words[i] = string(c)
	}
	return strings.Join(words, ", ")
}

// listener is an address to listen on. It reads "off" as "".
type listener struct{ chars }

func address(p *string) value {
	return &listener{chars{p: p, check: checkAddress, accepted: "host:port, :port for all interfaces, or off"}}
}

func (v *listener) Set(s string) error {
	if s == "off" {
		s = ""
	}
	return v.chars.Set(s)
}

func (v *listener) String() string {
	if *v.p == "" {
		return "off"
	}
	return *v.p
}

func (v *listener) YAML() string { return quote(v.String()) }

func checkAddress(s string) error {
	if s == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return missingPart(s)
	}
	if n, err := strconv.ParseUint(port, 10, 64); err != nil || n > 65535 {
		return fmt.Errorf("has the port %q, which is not 0 to 65535", port)
	}
	return nil
}

// missingPart guesses what somebody meant who wrote half an address.
func missingPart(s string) error {
	if _, err := strconv.ParseUint(s, 10, 16); err == nil {
		return fmt.Errorf("is a port without its colon (:%s?)", s)
	}
	if strings.Count(s, ":") > 1 && !strings.Contains(s, "[") {
		return errors.New("is not an address: an IPv6 host stands in brackets, as in [::1]:5672")
	}
	return errors.New("is not an address such as :5672 or 127.0.0.1:5672")
}

// list is a list of words; in one text, commas stand between them.
type list struct{ p *[]string }

func (v list) Set(s string) error {
	if strings.TrimSpace(s) == "" {
		return v.SetList(nil)
	}
	return v.SetList(strings.Split(s, ","))
}

func (v list) SetList(items []string) error {
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
	*v.p = words
	return nil
}

func (v list) String() string  { return strings.Join(*v.p, ",") }
func (v list) Accepts() string { return "a list such as [ttl, expires], or ttl,expires" }

func (v list) YAML() string {
	items := make([]string, len(*v.p))
	for i, item := range *v.p {
		items[i] = quote(item)
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// hosts is a list of names of hosts, in lower case.
type hosts struct{ list }

var hostName = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?$`)

func (v hosts) Set(s string) error {
	if strings.TrimSpace(s) == "" {
		return v.SetList(nil)
	}
	return v.SetList(strings.Split(s, ","))
}

func (v hosts) SetList(items []string) error {
	var words []string
	if err := (list{&words}).SetList(items); err != nil {
		return err
	}
	for i, word := range words {
		words[i] = strings.ToLower(word)
		if !hostName.MatchString(words[i]) {
			return fmt.Errorf("has %q, which is not the name of a host without scheme and port", word)
		}
	}
	*v.p = words
	return nil
}

func (v hosts) Accepts() string {
	return "a list such as [broker.example.com], or a.example.com,b.example.com"
}

// plain are the strings that every YAML reader takes for a string; words like
// "no" are not among them.
var (
	plain    = regexp.MustCompile(`^(\.{0,2}/)?[A-Za-z][A-Za-z0-9._/-]*$`)
	reserved = regexp.MustCompile(`(?i)^(y|n|yes|no|on|off|true|false|null)$`)
)

// quote returns s as a YAML scalar: JSON's strings are YAML's, too.
func quote(s string) string {
	if plain.MatchString(s) && !reserved.MatchString(s) {
		return s
	}
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always has a JSON form
	}
	return string(b)
}
