// Package delay holds messages for as long as their publishers ask. It offers the exchange type x-delayed-message, which
// routes a message when its delay is over, and supports identities, cancellation and recurrence.
package delay

import (
	"errors"
	"fmt"
	"hash/maphash"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Config is the section plugins.delay.
type Config struct {
	// Max is the longest time for which a message may be held, in whole milliseconds, at most ten years.
	Max time.Duration `koanf:"max" range:"1ms..87600h" doc:"Longest time a message may be held, in whole milliseconds."`
	// MaxHeld is the maximum number of messages that an exchange may hold. 0 = no limit.
	MaxHeld int `koanf:"max-held" range:"0.." doc:"Messages that an exchange may hold; 0 = no limit."`
	// Headers makes x-deliver-after and x-deliver-at hold messages in queues.
	Headers bool `koanf:"headers" doc:"Whether the headers x-deliver-after and x-deliver-at hold messages in queues."`
}

// tenYears is the longest possible hold, and the default.
const tenYears = hook.MaxMillis * time.Millisecond

// Factory makes the plugin.
var Factory = hook.NewFactory("delay", Config{Max: tenYears, Headers: true}, build)

type plugin struct {
	max        int64 // longest hold, in milliseconds
	maxHeld    hook.Limit
	headers    bool
	timetables timetables
}

func build(c Config) (hook.Plugin, error) {
	var errs []error
	if c.Max < time.Millisecond || c.Max > tenYears || c.Max%time.Millisecond != 0 {
		errs = append(errs, fmt.Errorf("max: %s is out of range; accepted are whole milliseconds from 1ms to %s", c.Max, tenYears))
	}
	if c.MaxHeld < 0 {
		errs = append(errs, fmt.Errorf("max-held: %d is out of range; accepted are 0 (no limit) and more", c.MaxHeld))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	p := &plugin{max: c.Max.Milliseconds(), headers: c.Headers, timetables: timetables{seed: maphash.MakeSeed()}}
	if c.MaxHeld > 0 {
		p.maxHeld = hook.LimitOf(int64(c.MaxHeld))
	}
	return p, nil
}
