package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/sdk/hook"
)

// loadPlugins configures the plugins of the chain, and refuses the sections of plugins outside it.
func (l *loader) loadPlugins() {
	l.spoiled = map[string]bool{}
	seen := map[string]bool{}
	for _, name := range l.cfg.chain {
		f := l.factory(name)
		switch {
		case seen[name]:
			l.refuseChain(fmt.Sprintf("names %s twice", name))
		case f == nil:
			l.spoiled[name] = true
			l.refuseChain("names the " + l.unknownPlugin(" "+name, name, l.plugins()))
		default:
			l.loadPlugin(f)
		}
		seen[name] = true
	}
	for _, y := range l.layers {
		l.refuseSections(y)
	}
}

func (l *loader) refuseChain(problem string) {
	l.refuse(&Error{Key: "plugins.chain", Problem: problem, Source: l.cfg.setting("plugins.chain").source})
}

func (l *loader) factory(name string) *hook.Factory {
	i := slices.IndexFunc(l.in.Plugins, func(f hook.Factory) bool { return f.Name == name })
	if i < 0 {
		return nil
	}
	return &l.in.Plugins[i]
}

func (l *loader) plugins() []string {
	names := make([]string, len(l.in.Plugins))
	for i, f := range l.in.Plugins {
		names[i] = f.Name
	}
	return names
}

// loadPlugin lets the factory decode its section. Wrong values are reported and keep their defaults, so that the plugin can check
// the others.
func (l *loader) loadPlugin(f *hook.Factory) {
	section := "plugins." + f.Name
	var mine []*setting
	p, config, err := f.New(func(into any) error {
		var err error
		if mine, err = bind(section, into, l.entries); err == nil {
			l.assign(only(mine))
		}
		return err
	})
	l.cfg.add(mine...)
	if err != nil {
		l.refusedBy(section, err)
		return
	}
	show(mine, section, config)
	l.cfg.Plugins = append(l.cfg.Plugins, Plugin{Name: f.Name, Plugin: p})
}

// checkChain checks the plugins together, if no other problem was found.
func (l *loader) checkChain() {
	if l.in.Check == nil || len(l.problems) > 0 {
		return
	}
	if err := l.in.Check(l.cfg.Plugins); err != nil {
		l.refusedBy("", err)
	}
}

// refusedBy reports a plugin's error about its section: "KEY: problem", or several of these joined. An error without a key
// concerns the whole section.
func (l *loader) refusedBy(section string, err error) {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range many.Unwrap() {
			l.refusedBy(section, e)
		}
		return
	}
	key, problem := section, err.Error()
	for {
		part, rest, more := strings.Cut(problem, ": ")
		longer := strings.TrimPrefix(key+"."+part, ".")
		if s := l.cfg.setting(longer); s != nil && more {
			l.refuse(&Error{Key: s.key, Problem: rest, Source: s.source})
			return
		}
		if !more || !l.isSection(longer) {
			l.refuse(&Error{Key: key, Problem: problem})
			return
		}
		key, problem = longer, rest
	}
}

func (l *loader) isSection(key string) bool {
	return slices.ContainsFunc(l.cfg.settings, func(s *setting) bool { return strings.HasPrefix(s.key, key+".") })
}

// refuseSections reports, once each, the sections of plugins that are not in the chain.
func (l *loader) refuseSections(y *layer) {
	refused := map[string]bool{}
	for _, name := range y.names() {
		section, ok := y.section(name)
		if !ok || refused[section] || l.inChain(y, section) {
			continue
		}
		refused[section] = true
		l.refuse(&Error{Key: y.name("plugins") + y.sep + section, Problem: l.strayed(y, section), Source: y.source(name)})
	}
}

// section returns the name of the plugin that a name of the layer belongs to.
func (y *layer) section(name string) (string, bool) {
	rest, ok := strings.CutPrefix(name, y.name("plugins")+y.sep)
	if !ok || name == y.name("plugins.chain") {
		return "", false
	}
	section, _, _ := strings.Cut(rest, y.sep)
	return section, true
}

// spelt returns a plugin's name as the layer spells it.
func (y *layer) spelt(plugin string) string {
	return strings.TrimPrefix(y.name("plugins."+plugin), y.name("plugins")+y.sep)
}

func (l *loader) inChain(y *layer, section string) bool {
	return slices.ContainsFunc(l.cfg.chain, func(p string) bool { return y.spelt(p) == section })
}

func (l *loader) strayed(y *layer, section string) string {
	if slices.ContainsFunc(l.plugins(), func(p string) bool { return y.spelt(p) == section }) {
		return fmt.Sprintf("is a section for a plugin that is not in plugins.chain [%s]; add it there or remove the section", strings.Join(l.cfg.chain, ", "))
	}
	known := []string{y.spelt("chain")}
	for _, p := range l.plugins() {
		known = append(known, y.spelt(p))
	}
	return l.unknownPlugin("", section, known)
}

func (l *loader) unknownPlugin(label, name string, known []string) string {
	if Nearest(name, known) != "" {
		return unknown("plugin"+label, name, known)
	}
	return "unknown plugin" + label + "; known plugins: " + strings.Join(l.plugins(), ", ")
}

// isSpoiled reports whether a name belongs to a section that was refused as a whole.
func (l *loader) isSpoiled(y *layer, name string) bool {
	section, ok := y.section(name)
	return ok && (!l.inChain(y, section) || slices.ContainsFunc(l.cfg.chain, func(p string) bool {
		return l.spoiled[p] && y.spelt(p) == section
	}))
}
