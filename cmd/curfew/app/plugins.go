package app

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/curfewmq/curfew/plugins/consistenthash"
	"github.com/curfewmq/curfew/plugins/deadletter"
	"github.com/curfewmq/curfew/plugins/dedup"
	"github.com/curfewmq/curfew/plugins/delay"
	"github.com/curfewmq/curfew/plugins/expires"
	"github.com/curfewmq/curfew/plugins/maxlength"
	"github.com/curfewmq/curfew/plugins/modulushash"
	"github.com/curfewmq/curfew/plugins/random"
	"github.com/curfewmq/curfew/plugins/retry"
	"github.com/curfewmq/curfew/plugins/ttl"
	"github.com/curfewmq/curfew/plugins/wasm"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Builtin returns the plugins of the repository, in the order in which the default chain asks them. Exchange types come last: their
// place means nothing.
func Builtin() []hook.Factory { return allPlugins(nil) }

// allPlugins returns the plugins of the repository and others. Others come after the strategies of the repository, and before what acts
// on their verdicts: the limits of queues and dead-lettering.
func allPlugins(others []hook.Factory) []hook.Factory {
	return slices.Concat(
		[]hook.Factory{ttl.Factory, dedup.Factory, delay.Factory, wasm.Factory},
		others,
		[]hook.Factory{
			maxlength.Factory, deadletter.Factory, expires.Factory, retry.Factory,
			consistenthash.Factory, modulushash.Factory, random.Factory,
		},
	)
}

// From returns the plugins of a package for [Main], with the import path that errors and "curfew version" name. Main refuses a
// package without plugins. Programs that "curfew build" writes call it.
func From(pkg string, plugins ...hook.Factory) []hook.Factory {
	if len(plugins) == 0 {
		return []hook.Factory{{Package: pkg}}
	}
	named := slices.Clone(plugins)
	for i := range named {
		named[i].Package = pkg
	}
	return named
}

// validPlugin matches the names of plugins, which are part of configuration keys and variables.
var validPlugin = regexp.MustCompile(`^[a-z][a-z0-9-]{0,63}$`)

// checkPlugins refuses plugins that cannot be told apart or have no section of the configuration. Its error joins all mistakes.
func checkPlugins(plugins []hook.Factory) error {
	var errs []error
	for i, f := range plugins {
		errs = append(errs, checkPlugin(f, plugins[:i]))
	}
	return errors.Join(errs...)
}

func checkPlugin(f hook.Factory, before []hook.Factory) error {
	from := cmp.Or(f.Package, "an unknown package")
	if f.Name == "" && f.New == nil {
		return fmt.Errorf("%s has no plugin: its Factories are empty, or its Factory is", from)
	}
	if !validPlugin.MatchString(f.Name) || f.Name == "chain" {
		return fmt.Errorf("the plugin of %s has the name %q; accepted are 1 to 64 lower-case letters, digits and dashes, the first a letter, but not chain", from, f.Name)
	}
	if f.New == nil {
		return fmt.Errorf("the plugin %s of %s has no function New", f.Name, from)
	}
	same := slices.IndexFunc(before, func(o hook.Factory) bool { return o.Name == f.Name })
	if same < 0 {
		return nil
	}
	first := cmp.Or(before[same].Package, "an unknown package")
	return fmt.Errorf("two plugins have the name %s: those of %s and %s; leave one of them out", f.Name, first, from)
}

// undeadlettered returns the plugins of a chain that come after deadletter, which does not see the messages that they drop, although
// they come before it in the default chain; and the chain with deadletter behind them.
func undeadlettered(chain []string, order []hook.Factory) (late, better []string) {
	position := func(name string) int {
		return slices.IndexFunc(order, func(f hook.Factory) bool { return f.Name == name })
	}
	at, last := slices.Index(chain, deadletter.Factory.Name), 0
	if at < 0 {
		return nil, nil
	}
	for i := at + 1; i < len(chain); i++ {
		if position(chain[i]) < position(chain[at]) {
			late, last = append(late, chain[i]), i
		}
	}
	if len(late) == 0 {
		return nil, nil
	}
	return late, slices.Concat(chain[:at], chain[at+1:last+1], chain[at:at+1], chain[last+1:])
}
