package rabbit

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
)

// Term prints the value of a field as an Erlang term.
func Term(v any) string {
	switch v := v.(type) {
	case string:
		return binary(v)
	case []byte:
		return binary(string(v))
	}
	return Text(v)
}

// Text prints the value of a field like [Term], but strings without quotes.
func Text(v any) string {
	switch v := v.(type) {
	case nil:
		return "undefined"
	case []byte:
		return string(v)
	case float32:
		return float(float64(v))
	case float64:
		return float(v)
	case amqp.Decimal:
		return fmt.Sprintf("{%d,%d}", v.Scale, v.Value)
	case amqp.Array, amqp.Table:
		return "[...]"
	}
	return fmt.Sprint(v)
}

// JSON prints a JSON value approximately as RabbitMQ prints the term it decodes from it.
func JSON(raw []byte) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) > 0 && raw[0] == '"' {
		return "<<" + string(raw) + ">>"
	}
	return string(raw)
}

// float always prints a fraction, because in Erlang 1 is not a float.
func float(f float64) string {
	s := strconv.FormatFloat(f, 'g', -1, 64)
	if strings.ContainsAny(s, ".eIN") {
		return s
	}
	return s + ".0"
}

// binary quotes printable text and prints anything else byte by byte.
func binary(s string) string {
	if s == "" {
		return "<<>>"
	}
	if !strings.ContainsFunc(s, unprintable) {
		return "<<" + strconv.Quote(s) + ">>"
	}
	octets := make([]string, len(s))
	for i := range len(s) {
		octets[i] = strconv.Itoa(int(s[i]))
	}
	return "<<" + strings.Join(octets, ",") + ">>"
}

func unprintable(r rune) bool {
	return (r < ' ' || r > '~') && !strings.ContainsRune("\b\t\n\v\f\r", r)
}
