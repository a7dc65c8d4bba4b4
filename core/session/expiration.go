package session

import (
	"strconv"
	"strings"

	"github.com/curfewmq/curfew/sdk/hook"
)

// maxExpiration is the longest time a message may have to live, in milliseconds: ten years [RabbitMQ: ttl.html].
const maxExpiration = 10 * 365 * 24 * 60 * 60 * 1000

// parseExpiration reads the expiration property: milliseconds in decimal, with a sign if it must be. The error texts are
// RabbitMQ's.
func parseExpiration(raw []byte, given bool) (hook.Limit, error) {
	if !given {
		return 0, nil
	}
	negative, digits, rest := cutInteger(string(raw))
	significant := strings.TrimLeft(digits, "0")
	n, err := strconv.ParseInt(significant, 10, 64)
	switch {
	case digits == "":
		return 0, invalidExpiration(raw, "no_integer")
	case rest != "":
		return 0, invalidExpiration(raw, "{leftover_string,"+strconv.Quote(rest)+"}")
	case significant == "":
		return hook.LimitOf(0), nil
	case negative:
		return 0, invalidExpiration(raw, "{value_negative,-"+significant+"}")
	case err != nil || n > maxExpiration:
		return 0, invalidExpiration(raw, "{value_too_large,"+significant+"}")
	}
	return hook.LimitOf(n), nil
}

func invalidExpiration(raw []byte, why string) error {
	return precondition("invalid expiration '%s': %s", strings.ToValidUTF8(string(raw), "?"), why)
}

// cutInteger takes the integer off the start of s.
func cutInteger(s string) (negative bool, digits, rest string) {
	unsigned := strings.TrimLeft(s, "+-")
	if len(s)-len(unsigned) > 1 {
		return false, "", s
	}
	end := strings.IndexFunc(unsigned, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(unsigned)
	}
	return strings.HasPrefix(s, "-"), unsigned[:end], unsigned[end:]
}
