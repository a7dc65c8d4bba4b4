package broker

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/rabbitmq/amqp091-go"
)

// call is a command line, taken apart: "verb word… flag… key=value…".
type call struct {
	verb  string
	words []string
	flags []string
	args  []argument
}

type argument struct{ key, value string }

// known are the words that are flags.
var known = []string{
	"durable", "auto-delete", "exclusive", "passive", "nowait", "internal", "mandatory", "immediate", "persistent", "no-ack",
	"unacked", "multiple", "requeue", "if-unused", "if-empty", "global",
}

func parseCall(line string) (call, error) {
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return call{}, errors.New("an empty command")
	}
	c := call{verb: fields[0]}
	for _, f := range fields[1:] {
		key, value, isArg := strings.Cut(f, "=")
		switch {
		case isArg:
			c.args = append(c.args, argument{key, value})
		case slices.Contains(known, f):
			c.flags = append(c.flags, f)
		default:
			c.words = append(c.words, f)
		}
	}
	return c, nil
}

// word is the n-th word, "" when there is none or where "" is written.
func (c call) word(n int) string {
	if n >= len(c.words) {
		return ""
	}
	return strings.Trim(c.words[n], `"`)
}

func (c call) has(flag string) bool { return slices.Contains(c.flags, flag) }

// option is the value of an argument, or otherwise.
func (c call) option(key, otherwise string) string {
	for _, a := range c.args {
		if a.key == key {
			return a.value
		}
	}
	return otherwise
}

func (c call) number(key string, otherwise int) int {
	n, err := strconv.Atoi(c.option(key, strconv.Itoa(otherwise)))
	if err != nil {
		panic(err) // the script is wrong
	}
	return n
}

// table has the arguments that begin with prefix as a field table.
func (c call) table(prefix string) amqp091.Table {
	table := amqp091.Table{}
	for _, a := range c.args {
		if key, ok := strings.CutPrefix(a.key, prefix); ok {
			table[key] = field(a.value)
		}
	}
	return table
}

// field reads a value: true and false, whole numbers (4 bytes where they fit), [a,b] as an array, type:value for others; the rest is
// text.
func field(s string) any {
	if kind, v, ok := strings.Cut(s, ":"); ok {
		if f, known := kinds[kind]; known {
			return f(v)
		}
	}
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		var list []any
		for item := range strings.SplitSeq(strings.Trim(s, "[]"), ",") {
			list = append(list, field(item))
		}
		return list
	}
	if b, err := strconv.ParseBool(s); err == nil && len(s) > 1 {
		return b
	}
	if n, err := strconv.ParseInt(s, 10, 32); err == nil {
		return int32(n)
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n
	}
	return s
}

var kinds = map[string]func(string) any{
	"text":  func(s string) any { return s },
	"byte":  func(s string) any { return byte(whole(s)) },
	"short": func(s string) any { return int16(whole(s)) },
	"long":  func(s string) any { return whole(s) },
	"float": func(s string) any { return float64(whole(s)) },
}

func whole(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err) // the script is wrong
	}
	return n
}
