package delay

import (
	"math"
	"strconv"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// The headers that hold a message in the queues to which it is routed.
const (
	headerAfter = "x-deliver-after"
	headerAt    = "x-deliver-at"
)

// keyDelay is the setting of queues that hold every message that enters.
const keyDelay = "delivery-delay"

var _ hook.HoldReader = (*plugin)(nil)

// Arguments implements [hook.Plugin].
func (p *plugin) Arguments() []hook.Argument {
	what := "delivery delay, expected 0 to " + strconv.FormatInt(p.max, 10) + " milliseconds"
	return []hook.Argument{{
		Name:  "x-" + keyDelay,
		Check: func(v any, _ hook.Args) error { return hook.CheckInt(v, 0, p.max) },
		Policy: &hook.PolicyKey{
			Check:    hook.PolicyInt(0, p.max, what),
			Argument: hook.TakeWeaker,
		},
	}}
}

// Attach implements [hook.Plugin]. It returns no hooks for a queue without a delay: the broker itself handles the headers.
func (p *plugin) Attach(q hook.Queue) hook.Hooks {
	hs := hook.Hooks{Shared: true}
	if delay := hook.IntSetting(q, keyDelay); delay.Set() && delay.N() > 0 {
		hs.OnEnqueue = queueDelay(min(delay.N(), p.max)).hold // the limit may have been lowered
	}
	return hs
}

// queueDelay is a queue's delay, in milliseconds.
type queueDelay int64

func (d queueDelay) hold(now hook.Instant, _ []hook.Message, vs []hook.Verdict) {
	until := now.AddMillis(int64(d))
	for i := range vs {
		if v := &vs[i]; v.Action == hook.Keep && v.Hold < until {
			v.Hold = until
		}
	}
}

func (p *plugin) HoldHeaders() []string {
	if !p.headers {
		return nil
	}
	return []string{headerAfter, headerAt}
}

func (p *plugin) ReadHold(now hook.Instant, values []any) (w hook.Wait, err error) {
	if v := values[0]; v != nil {
		if w.After, err = p.readAfter(v); err != nil {
			return hook.Wait{}, err
		}
	}
	if v := values[1]; v != nil {
		if w.Until, err = p.readAt(now, v); err != nil {
			return hook.Wait{}, err
		}
	}
	return w, nil
}

// readAfter reads a number of milliseconds.
func (p *plugin) readAfter(v any) (ms int64, err error) {
	refuse := func(term string) error {
		return &headerError{headerAfter, term, "0 to " + strconv.FormatInt(p.max, 10) + " milliseconds"}
	}
	ms, ok := millisOf(v)
	switch {
	case !ok:
		return 0, refuse("no_integer")
	case ms < 0:
		return 0, refuse(tooLow(ms))
	case ms > p.max:
		return 0, refuse(tooHigh(ms))
	}
	return ms, nil
}

// readAt reads a timestamp, or a number of milliseconds since 1970.
func (p *plugin) readAt(now hook.Instant, v any) (hook.Instant, error) {
	refuse := func(term string) error {
		return &headerError{headerAt, term, "a timestamp, or milliseconds since 1970, at most " + strconv.FormatInt(p.max, 10) + " milliseconds from now"}
	}
	var ms int64
	if t, ok := v.(time.Time); ok {
		ms = t.UnixMilli()
	} else if ms, ok = millisOf(v); !ok {
		return 0, refuse("no_integer")
	}
	switch {
	case ms < 0:
		return 0, refuse(tooLow(ms))
	case ms > now.Time().UnixMilli()+p.max:
		return 0, refuse(tooHigh(ms))
	}
	return hook.Instant(0).AddMillis(ms), nil
}

// millisOf returns a header's value if it is a number: an integer, a floating-point number, which is rounded up so that nothing is released
// early, or decimal digits.
func millisOf(v any) (ms int64, ok bool) {
	switch v := v.(type) {
	case float32:
		return hook.WholeFloat(math.Ceil(float64(v)))
	case float64:
		return hook.WholeFloat(math.Ceil(v))
	case string:
		return hook.WholeText([]byte(v))
	case []byte:
		return hook.WholeText(v)
	}
	return hook.Int(v)
}

func tooLow(ms int64) string  { return "{value_negative," + strconv.FormatInt(ms, 10) + "}" }
func tooHigh(ms int64) string { return "{value_too_large," + strconv.FormatInt(ms, 10) + "}" }

type headerError struct{ name, term, expected string }

func (e *headerError) Error() string {
	return "invalid header '" + e.name + "': " + e.term + ", expected " + e.expected
}

// MaxHold returns how long a message may be held, in milliseconds. The broker passes it to plugins that run others' code to decide about
// holds.
func (p *plugin) MaxHold() hook.Limit { return hook.LimitOf(p.max) }
