// Package dedup drops duplicates of messages: at exchanges for a time or a number of messages, and at queues for as long as an equal
// message is in the queue. Messages are equal if the values of one header are equal.
package dedup

import (
	"errors"
	"fmt"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Config is the section plugins.dedup.
type Config struct {
	// MaxCacheSize is the highest x-cache-size of an exchange.
	MaxCacheSize int `koanf:"max-cache-size" range:"1..1073741824" doc:"Highest x-cache-size of an exchange, messages."`
	// MaxEntries is how many messages all exchanges and queues remember together.
	MaxEntries int `koanf:"max-entries" range:"1..1073741824" doc:"Messages that all exchanges and queues remember together, at about 40 bytes each."`
}

var defaults = Config{MaxCacheSize: 1_000_000, MaxEntries: 10_000_000}

// Factory makes the plugin.
var Factory = hook.NewFactory("dedup", defaults, build)

// plugin has all the caches. Any goroutine may use it.
type plugin struct {
	config Config
	seeds  seeds
	budget budget
	queues queues
}

func build(c Config) (hook.Plugin, error) {
	err := errors.Join(checkEntries("max-cache-size", c.MaxCacheSize), checkEntries("max-entries", c.MaxEntries))
	if err != nil {
		return nil, err
	}
	return &plugin{
		config: c, seeds: newSeeds(), budget: budget{most: int64(c.MaxEntries)}, queues: queues{keys: map[hook.Queue]*cache{}},
	}, nil
}

func checkEntries(name string, n int) error {
	if n < 1 || n > maxEntries {
		return fmt.Errorf("%s: %d, expected 1 to %d messages", name, n, maxEntries)
	}
	return nil
}
