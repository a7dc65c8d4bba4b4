// Package wasm lets WebAssembly modules decide when messages and queues expire.
// Policies can be written in any language, and are loaded and replaced while the
// broker runs. The contract with a module is policy_v1; see package sdk/abi.
//
// A [Host] is the plugin. It offers an expiry strategy wasm/NAME for each module. In the
// queue's turn it calls an instance of the module about batches of messages. A module
// cannot harm the broker: it is rewritten so that its instructions are metered (package
// meter), an instance that traps is never used again, verdicts are checked, and a module
// that fails repeatedly is no longer called. [OnError] then decides in its place.
//
// A Host has policies, a policy has a version in force, and a version is a compiled module with its settings and a pool of instances. A
// binding ties a policy to a queue.
//
// The package starts no goroutine and reads no clock: callbacks get the time as a parameter, and work that must not run in a queue's turn
// is passed to [Env.Go].
package wasm

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Config is the section plugins.wasm.
type Config struct {
	// Modules are the policies loaded at the start, by name.
	Modules map[string]*Module `koanf:"modules" doc:"Expiry policies loaded when the broker starts, by name: NAME is the strategy wasm/NAME."`
	// Memory limits one instance, TotalMemory all of them.
	Memory      Size `koanf:"memory" accepts:"64KiB to 1GiB, in whole pages of 64KiB" doc:"Maximum memory of one instance of a module, in pages of 64KiB."`
	TotalMemory Size `koanf:"total-memory" accepts:"64KiB to 1024GiB" doc:"Maximum memory of all instances together."`
	// Interpreter allows modules where they cannot be compiled.
	Interpreter bool `koanf:"interpreter" doc:"Run modules even on platforms where they can only be interpreted, some 50 times slower."`
}

// Module is a policy in the configuration.
type Module struct {
	Path    string         `koanf:"path" accepts:"the path of a file" doc:"File with the module."`
	Config  map[string]any `koanf:"config" doc:"Passed to the policy."`
	Grants  []string       `koanf:"grants" accepts:"a list of headers, body, route, metrics, trace, hold" doc:"What the policy may do besides deciding."`
	Fuel    Fuel           `koanf:"fuel" accepts:"default, large, or 10000 to 1000000000" doc:"Fuel of a call, roughly a number of instructions."`
	OnError OnError        `koanf:"on-error" accepts:"builtin, keep, reject" doc:"Treatment of messages when the policy fails or is not loaded: builtin = the TTL applies, keep = no deadline, reject = new ones are refused."`
}

const (
	pageSize = 64 << 10

	defaultMemory      = 16 << 20
	defaultTotalMemory = 1 << 30
	maxMemory          = 1 << 30
	maxTotalMemory     = 1 << 40
)

// Factory makes the plugin, which is a [*Host].
var Factory = hook.NewFactory("wasm", Config{Memory: defaultMemory, TotalMemory: defaultTotalMemory}, build)

// validName matches the names of policies, which are used in file names, configuration keys, URLs and queue arguments.
var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

func checkName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("the name %q is not accepted: 1 to 64 lower-case letters, digits, - and _, the first a letter or digit", name)
	}
	return nil
}

// build checks a configuration. It reads no file: [Host.Open] loads the modules.
func build(c Config) (hook.Plugin, error) {
	errs := []error{
		inRange("memory", c.Memory, pageSize, maxMemory),
		inRange("total-memory", c.TotalMemory, pageSize, maxTotalMemory),
	}
	if c.Memory%pageSize != 0 {
		errs = append(errs, fmt.Errorf("memory: %s is not in whole pages of %s", c.Memory, Size(pageSize)))
	}
	h := newHost(c)
	for _, name := range slices.Sorted(maps.Keys(c.Modules)) {
		errs = append(errs, h.declare(name, c.Modules[name]))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return h, nil
}

func inRange(key string, got, low, high Size) error {
	if got < low || got > high {
		return fmt.Errorf("%s: %s is out of range; accepted are %s to %s", key, got, low, high)
	}
	return nil
}

// declare adds a policy of the configuration, which [Host.Open] will load.
func (h *Host) declare(name string, m *Module) error {
	key := "modules." + name
	if err := checkName(name); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if m.Path == "" {
		return fmt.Errorf("%s.path: is missing; name the file with the module", key)
	}
	o, err := m.options()
	if err != nil {
		return fmt.Errorf("%s.%w", key, err)
	}
	h.add(&policy{name: name, origin: Configured, path: m.Path, source: source{options: o}})
	return nil
}

// options returns the module's settings. Its error begins with the key.
func (m *Module) options() (Options, error) {
	o := Options{Grants: m.Grants, Fuel: m.Fuel, OnError: m.OnError}
	if len(m.Config) > 0 {
		b, err := json.Marshal(m.Config)
		if err != nil {
			return o, fmt.Errorf("config: %w", err)
		}
		o.Config = b
	}
	return o, o.check()
}
