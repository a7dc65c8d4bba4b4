package ttl

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/curfewmq/curfew/sdk/hook"
)

// CheckExpiration implements [hook.ExpirationChecker]. The property is a decimal number of milliseconds, with an optional sign, up to ten
// years. The errors are RabbitMQ's.
func (p *plugin) CheckExpiration(raw []byte) (hook.Limit, error) {
	negative, digits, rest := cutInteger(raw)
	significant := bytes.TrimLeft(digits, "0")
	switch {
	case len(digits) == 0:
		return 0, errors.New("no_integer")
	case len(rest) > 0:
		return 0, errors.New("{leftover_string," + strconv.Quote(string(rest)) + "}")
	case len(significant) == 0:
		return hook.LimitOf(0), nil
	case negative:
		return 0, errors.New("{value_negative,-" + string(significant) + "}")
	}
	n, ok := hook.WholeText(significant)
	if !ok || n > hook.MaxMillis {
		return 0, errors.New("{value_too_large," + string(significant) + "}")
	}
	return hook.LimitOf(n), nil
}

// cutInteger splits off the integer at the start of b.
func cutInteger(b []byte) (negative bool, digits, rest []byte) {
	unsigned := bytes.TrimLeft(b, "+-")
	if len(b)-len(unsigned) > 1 {
		return false, nil, b
	}
	rest = bytes.TrimLeft(unsigned, "0123456789")
	return len(b) > 0 && b[0] == '-', unsigned[:len(unsigned)-len(rest)], rest
}
