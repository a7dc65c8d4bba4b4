// Package wasm lets WebAssembly modules decide when messages and queues have
// had their time: expiry policies in any language, loaded and changed while the
// broker runs. The contract with a module is policy_v1, which package sdk/abi
// describes.
//
// A [Host] is the plugin. It offers an expiry strategy wasm/NAME for each module,
// and asks instances of the module whatever the broker asks the strategy, in
// batches, on the goroutine of the queue's turn. A module cannot harm the broker:
// it is rewritten to pay for what it executes (package meter), an instance that
// traps is never used again, a verdict is checked before it counts, and a module
// that goes on failing is no longer asked. What it should have said is then said
// for it: see [OnError].
//
// From the outside in: a Host has policies, a policy has a version in force, a
// version is a compiled module with its settings and a pool of instances. A
// binding ties a policy to a queue.
//
// The package starts no goroutine and reads no clock: time is what callbacks
// bring along, and what should not be done on a queue's turn is handed to
// [Env.Go].
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
	// Modules are the policies that are there from the start, by name.
	Modules map[string]*Module `koanf:"modules"`
	// Memory bounds one instance, TotalMemory all of them.
	Memory      Size `koanf:"memory" doc:"Most memory that one instance of a module may have; whole pages of 64KiB."`
	TotalMemory Size `koanf:"total-memory" doc:"Most memory that all instances together may have."`
	// Interpreter allows modules where they cannot be compiled.
	Interpreter bool `koanf:"interpreter" doc:"Run modules even where they can only be interpreted, some 50 times slower."`
}

// Module is a policy in the configuration.
type Module struct {
	Path    string         `koanf:"path" doc:"File with the module."`
	Config  map[string]any `koanf:"config" doc:"Handed to the policy."`
	Grants  []string       `koanf:"grants" doc:"What the policy may do: headers, body, route, metrics, trace."`
	Fuel    Fuel           `koanf:"fuel" doc:"What a call may use, as a number of instructions or so: default, large, or the number."`
	OnError OnError        `koanf:"on-error" doc:"What messages get when the policy fails: builtin, keep, reject."`
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

// validName is what policies may be called: it is part of file names, keys of
// the configuration, URLs and queue arguments.
var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

func checkName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("the name %q is not accepted: 1 to 64 lower-case letters, digits, - and _, the first a letter or digit", name)
	}
	return nil
}

// build checks a configuration. It reads no file: modules are loaded when the
// host is opened.
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

// declare makes a policy known that will be loaded.
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

// options returns the module's settings. The error begins with the key that is
// wrong.
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
