// Package consistenthash offers the exchange type x-consistent-hash: each message goes to one of the bound queues, and messages
// with the same routing key, header or property to the same one.
package consistenthash

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Config is the section plugins.consistenthash. It has no settings.
type Config struct{}

// Factory makes the plugin.
var Factory = hook.NewFactory("consistenthash", Config{}, func(Config) (hook.Plugin, error) { return plugin{}, nil })

type plugin struct{ hook.NoHooks }

const (
	argHeader   = "hash-header"
	argProperty = "hash-property"
	argHashOn   = "x-hash-on" // LavinMQ's name of hash-header
)

// ExchangeTypes implements [hook.ExchangeTyper].
func (plugin) ExchangeTypes() []hook.ExchangeType {
	return []hook.ExchangeType{{
		Name:        "x-consistent-hash",
		Description: "Consistent Hashing Exchange",
		Arguments: []hook.ExchangeArgument{
			{Name: argHeader, Check: checkText(argHeader)},
			{Name: argProperty, Check: checkText(argProperty)},
			{Name: argHashOn, Check: checkText(argHashOn)},
		},
		Check:        check,
		CheckBinding: func(_ *hook.Exchange, key string, _ hook.Args) error { _, err := parseWeight(key); return err },
		New:          newRouter,
	}}
}

func newRouter(x *hook.Exchange) hook.Router {
	return &router{on: newSource(x), index: map[hook.Destination]int32{}}
}

// checkText refuses values that are not strings. RabbitMQ closes the connection with an internal error.
func checkText(name string) func(*hook.Exchange, any) error {
	return func(x *hook.Exchange, v any) error {
		if _, ok := v.(string); ok {
			return nil
		}
		return fmt.Errorf("invalid type '%s' for arg '%s' in exchange '%s' in vhost '%s': expected longstr",
			hook.TypeName(v), name, x.Name, x.VHost)
	}
}

// check refuses unsupported hash properties, and arguments that contradict one another.
func check(x *hook.Exchange) error {
	_, header := x.Args.Lookup(argHeader)
	property, hasProperty := x.Args.Lookup(argProperty)
	_, hashOn := x.Args.Lookup(argHashOn)
	switch {
	case header && hasProperty:
		return errors.New("hash-header and hash-property are mutually exclusive")
	case hashOn && (header || hasProperty):
		return errors.New("x-hash-on is mutually exclusive with hash-header and hash-property")
	case !hasProperty:
		return nil
	}
	name, _ := property.(string)
	if _, ok := properties[name]; !ok {
		return fmt.Errorf("Unsupported property: %s", name) //nolint:staticcheck // RabbitMQ's text
	}
	return nil
}

// parseWeight parses a binding key. RabbitMQ has no maximum weight; a large one ends its process.
func parseWeight(key string) (uint32, error) {
	n, err := strconv.ParseInt(key, 10, 64)
	switch {
	case err == nil && n < 1, errors.Is(err, strconv.ErrRange) && key[0] == '-':
		return 0, errors.New("The binding key must be greater than 0") //nolint:staticcheck // RabbitMQ's text
	case errors.Is(err, strconv.ErrRange), n > maxWeight:
		return 0, fmt.Errorf("The binding key must be an integer from 1 to %d: %s", maxWeight, term(key)) //nolint:staticcheck // in RabbitMQ's style
	case err != nil:
		return 0, fmt.Errorf("The binding key must be an integer: %s", term(key)) //nolint:staticcheck // RabbitMQ's text
	}
	return uint32(n), nil
}

// term prints a text as Erlang prints a binary.
func term(s string) string {
	if s == "" {
		return "<<>>"
	}
	printable := func(r rune) bool { return r >= ' ' && r <= '~' || strings.ContainsRune("\b\t\n\v\f\r", r) }
	if !strings.ContainsFunc(s, func(r rune) bool { return !printable(r) }) {
		return "<<" + strconv.Quote(s) + ">>"
	}
	octets := make([]string, len(s))
	for i := range len(s) {
		octets[i] = strconv.Itoa(int(s[i]))
	}
	return "<<" + strings.Join(octets, ",") + ">>"
}
