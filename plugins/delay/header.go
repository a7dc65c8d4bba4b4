package delay

import (
	"bytes"
	"math"
	"strconv"

	"github.com/curfewmq/curfew/sdk/hook"
)

// readDelay returns the delay that a message asks for, in milliseconds: 0 if it asks for none. It accepts integers, floats without their
// fraction, and decimal digits. Values of other types are ignored.
func readDelay(m *hook.Publishing, longest int64) (int64, error) {
	// Most delays are plain integers, which HeaderInt reads without an allocation.
	// HeaderInt also reads booleans, as 0 and 1, and timestamps, as whole seconds; those
	// are not delays.
	const second = 1000
	n, ok := m.HeaderInt(delayHeader)
	if ok && n > 1 && n <= longest && n%second != 0 {
		return n, nil
	}
	v, ok := m.Header(delayHeader)
	if !ok {
		return 0, nil
	}
	return delayOf(v, longest)
}

func delayOf(v any, longest int64) (int64, error) {
	switch v := v.(type) {
	case string:
		return digits([]byte(v), longest)
	case []byte:
		return digits(v, longest)
	case float32:
		return truncated(float64(v), longest)
	case float64:
		return truncated(v, longest)
	}
	n, _ := hook.Int(v)
	if n > longest {
		return 0, tooLarge(strconv.FormatInt(n, 10))
	}
	return max(n, 0), nil
}

// digits reads decimal digits. A minus sign means that the message has no delay.
func digits(text []byte, longest int64) (int64, error) {
	unsigned := bytes.TrimPrefix(text, []byte{'-'})
	if len(unsigned) == 0 || len(bytes.Trim(unsigned, "0123456789")) > 0 {
		return 0, invalid(delayHeader, "no_integer")
	}
	if len(unsigned) < len(text) {
		return 0, nil
	}
	significant := bytes.TrimLeft(unsigned, "0")
	if len(significant) == 0 {
		return 0, nil
	}
	n, ok := hook.WholeText(significant)
	if !ok || n > longest {
		return 0, tooLarge(shortened(significant))
	}
	return n, nil
}

// truncated reads a float.
func truncated(f float64, longest int64) (int64, error) {
	switch {
	case math.IsNaN(f):
		return 0, invalid(delayHeader, "no_integer")
	case f >= float64(longest)+1:
		return 0, tooLarge(strconv.FormatFloat(math.Trunc(f), 'g', -1, 64))
	}
	return max(int64(max(f, 0)), 0), nil
}

// tooLarge returns an error with RabbitMQ's term for a number beyond its limit.
func tooLarge(number string) error {
	return invalid(delayHeader, "{value_too_large,"+number+"}")
}

// shortened returns the first digits of a number.
func shortened(number []byte) string {
	const most = 40
	if len(number) > most {
		return string(number[:most]) + "..."
	}
	return string(number)
}
