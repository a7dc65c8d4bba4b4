// Package dedup drops duplicates of messages: at exchanges for a time or a number of messages, and at queues for as long as an equal
// message is in the queue. Messages are equal if the values of one header are equal.
package dedup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"reflect"

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

// plugin has all the caches. Any goroutine may use it. It implements [hook.Plugin].
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
		config: c, seeds: seeds{maphash.MakeSeed(), maphash.MakeSeed()}, budget: budget{most: int64(c.MaxEntries)}, queues: queues{keys: map[hook.Queue]*cache{}},
	}, nil
}

func checkEntries(name string, n int) error {
	if n < 1 || n > maxEntries {
		return fmt.Errorf("%s: %d, expected 1 to %d messages", name, n, maxEntries)
	}
	return nil
}

// key represents the value of a deduplication header by 128 bits of hash, with seeds that are secret to the process.
type key struct{ high, low uint64 }

type seeds [2]maphash.Seed

func (s *seeds) hash(b []byte) key { return key{maphash.Bytes(s[0], b), maphash.Bytes(s[1], b)} }

// headers is a message whose headers can be read.
type headers interface {
	Header(name string) (any, bool)
	HeaderInt(name string) (int64, bool)
	HeaderText(name string) ([]byte, bool)
}

// kind distinguishes values of different types whose bytes may be the same.
type kind uint64

const (
	kindText kind = iota // strings and binaries
	kindInt              // of any size
	kindFloat
	kindBool
	kindVoid
	kindTimestamp
)

// keyOf returns the key of a message. ok is false if it has none: the header is missing, or is a table, an array or a decimal.
func keyOf(s *seeds, m headers, header string) (k key, ok bool) {
	if b, ok := m.HeaderText(header); ok {
		return s.hash(b), true
	}
	v, ok := m.Header(header)
	if !ok {
		return key{}, false
	}
	of, n := kindInt, int64(0)
	switch v := v.(type) {
	case nil:
		of = kindVoid
	case bool:
		of = kindBool
		if v {
			n = 1
		}
	case float32:
		of, n = kindFloat, int64(math.Float64bits(float64(v)))
	case float64:
		of, n = kindFloat, int64(math.Float64bits(v))
	default:
		if n, ok = hook.Int(v); ok {
			break
		}
		seconds := reflect.ValueOf(v) // HeaderInt returns milliseconds, and only for some of them
		if hook.TypeName(v) != "timestamp" || !seconds.CanUint() {
			return key{}, false
		}
		of, n = kindTimestamp, int64(seconds.Uint())
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	k = s.hash(b[:])
	k.high ^= uint64(of) << 32
	return k, true
}
