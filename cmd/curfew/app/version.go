package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// module is the repository's module path in go.mod.
const module = "github.com/curfewmq/curfew"

// release is set by release builds, with -ldflags "-X github.com/curfewmq/curfew/cmd/curfew/app.release=…".
var release = "0.1.0"

// commit and date, in RFC 3339, are set by release builds like release. The go tool provides them only if it builds in a checkout with
// "-buildvcs".
var commit, date string

// version is the release. A program that was built from a published version of the module has that version, whatever its source says.
var version = publishedAs(builtFrom(module), release)

// published matches the versions of releases, but not those of mere commits.
var published = regexp.MustCompile(`^v(\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?)$`)

// untagged matches the end of a version that Go assigns to a commit without a tag.
var untagged = regexp.MustCompile(`\d{14}-[0-9a-f]{12}$`)

func publishedAs(m builtModule, otherwise string) string {
	match := published.FindStringSubmatch(m.version)
	if match == nil || m.folder != "" || untagged.MatchString(m.version) {
		return otherwise
	}
	return match[1]
}

// builtModule is a module from which the program was built.
type builtModule struct {
	path    string // "" = unknown
	version string
	folder  string // folder from which it was read instead of a published version; "" = none
}

// builtFrom returns the module that contains a package.
func builtFrom(pkg string) (best builtModule) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return best
	}
	for _, m := range append(info.Deps, &info.Main) {
		if (pkg == m.Path || strings.HasPrefix(pkg, m.Path+"/")) && len(m.Path) > len(best.path) {
			best = described(m)
		}
	}
	return best
}

func described(m *debug.Module) builtModule {
	switch r := m.Replace; {
	case r == nil:
		return builtModule{path: m.Path, version: m.Version}
	case filepath.IsAbs(r.Path) || strings.HasPrefix(r.Path, "."):
		return builtModule{path: m.Path, version: m.Version, folder: r.Path}
	default:
		return builtModule{path: m.Path, version: r.Version}
	}
}

// description is the output of "curfew version --json".
type description struct {
	Version  string              `json:"version"`
	Folder   string              `json:"folder,omitempty"`   // that the broker was built from, in a program with others' plugins
	Commit   string              `json:"commit,omitempty"`   // "" = unknown
	Date     string              `json:"date,omitempty"`     // of the commit
	Modified bool                `json:"modified,omitempty"` // since the commit
	Go       string              `json:"go"`
	OS       string              `json:"os"`
	Arch     string              `json:"arch"`
	Plugins  []pluginDescription `json:"plugins"`
}

// pluginDescription describes where a plugin comes from and what it offers.
type pluginDescription struct {
	Name    string `json:"name"`
	Package string `json:"package,omitempty"`
	Module  string `json:"module,omitempty"`
	Version string `json:"version,omitempty"`
	Folder  string `json:"folder,omitempty"` // that its module was read from
	offers
	Problem string `json:"problem,omitempty"` // why its offers are not known
}

// offers are the names that a plugin adds to the broker's.
type offers struct {
	Strategies        []string `json:"strategies,omitempty"`
	DynamicStrategies bool     `json:"dynamic_strategies,omitempty"` // further ones come and go while the broker runs
	Arguments         []string `json:"arguments,omitempty"`          // of queues
	PolicyKeys        []string `json:"policy_keys,omitempty"`
	ExchangeTypes     []string `json:"exchange_types,omitempty"`
	ExchangeArguments []string `json:"exchange_arguments,omitempty"` // of exchanges of its types, or of all types
}

func describe(plugins []hook.Factory) description {
	d := description{
		Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH,
		Folder: builtFrom(module).folder, Plugins: make([]pluginDescription, len(plugins)),
	}
	d.readCommit()
	for i, f := range plugins {
		d.Plugins[i] = describePlugin(f)
	}
	return d
}

// readCommit reads the commit from the release build or the go tool. A program with others' plugins is not built in a checkout.
func (d *description) readCommit() {
	if commit != "" {
		d.Commit, d.Date = commit, date
		return
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			d.Commit = s.Value
		case "vcs.time":
			d.Date = s.Value
		case "vcs.modified":
			d.Modified = s.Value == "true"
		}
	}
}

func describePlugin(f hook.Factory) pluginDescription {
	m := builtFrom(f.Package)
	d := pluginDescription{Name: f.Name, Package: f.Package, Module: m.path, Version: m.version, Folder: m.folder}
	if m.path == module {
		d.Version = version
	}
	var err error
	if d.offers, err = offered(f); err != nil {
		d.Problem = err.Error()
	}
	return d
}

// offered asks a plugin with default settings for its offers. Plugins of others may fail in any way.
func offered(f hook.Factory) (o offers, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("it panics: %v", v)
		}
	}()
	p, _, err := f.New(func(any) error { return nil })
	if err != nil {
		return o, fmt.Errorf("its defaults are invalid: %w", err)
	}
	if p == nil {
		return o, errors.New("its function New returned neither an error nor a plugin")
	}
	for _, a := range p.Arguments() {
		o.Arguments = append(o.Arguments, a.Name)
		if a.Policy != nil {
			o.PolicyKeys = append(o.PolicyKeys, strings.TrimPrefix(a.Name, "x-"))
		}
	}
	if s, ok := p.(hook.Strategist); ok {
		o.Strategies = s.Strategies()
		_, o.DynamicStrategies = s.(guest.Dynamic)
	}
	o.addExchanges(p)
	return o, nil
}

func (o *offers) addExchanges(p hook.Plugin) {
	if x, ok := p.(hook.ExchangeTyper); ok {
		for _, t := range x.ExchangeTypes() {
			o.ExchangeTypes = append(o.ExchangeTypes, t.Name)
			o.addExchangeArguments(t.Arguments)
		}
	}
	if x, ok := p.(hook.ExchangeFilterer); ok {
		o.addExchangeArguments(x.ExchangeArguments())
	}
}

func (o *offers) addExchangeArguments(all []hook.ExchangeArgument) {
	for _, a := range all {
		o.ExchangeArguments = append(o.ExchangeArguments, a.Name)
	}
}

func (a *app) printVersion(args []string) int {
	f := newFlags("version", "Prints the version of curfew, of the Go it was built with, and of each plugin in it,\nand what the plugins offer.")
	asJSON := f.Bool("json", false, "print JSON, for programs")
	if code, done := a.parse(f, args); done {
		return code
	}
	d := describe(a.plugins)
	if !*asJSON {
		d.write(a.stdout)
		return exitOK
	}
	out := json.NewEncoder(a.stdout)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	if err := out.Encode(d); err != nil {
		fmt.Fprintln(a.stderr, "curfew version:", err)
		return exitFailure
	}
	return exitOK
}

func (d *description) write(w io.Writer) {
	fmt.Fprintf(w, "curfew %s (%s, %s/%s)\n", d.Version, d.Go, d.OS, d.Arch)
	if d.Folder != "" {
		fmt.Fprintf(w, "built from %s\n", d.Folder)
	}
	fmt.Fprintf(w, "commit %s\n\n", d.revision())
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PLUGIN\tPACKAGE\tVERSION\tOFFERS")
	for i := range d.Plugins {
		p := &d.Plugins[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", p.Name, p.Package, p.source(), p.offer())
	}
	_ = t.Flush() // an error of standard output, like an error of the lines above
}

// revision describes the commit from which the program was built.
func (d *description) revision() string {
	if d.Commit == "" {
		return "unknown"
	}
	words := []string{d.Commit}
	if d.Date != "" {
		words = append(words, d.Date)
	}
	if d.Modified {
		words = append(words, "with changes")
	}
	return strings.Join(words, ", ")
}

// source returns a plugin's version, or the folder from which it was read.
func (p *pluginDescription) source() string {
	if p.Folder != "" && p.Module != module {
		return p.Folder
	}
	return p.Version
}

// offer lists a plugin's offers.
func (p *pluginDescription) offer() string {
	if p.Problem != "" {
		return "unknown: " + strings.Join(strings.Fields(p.Problem), " ") // on one line
	}
	strategies := p.Strategies
	if p.DynamicStrategies {
		strategies = append(strategies, "the loaded policies")
	}
	var parts []string
	for _, x := range []struct {
		what  string
		names []string
	}{
		{"strategies", strategies},
		{"arguments", p.Arguments},
		{"policy keys", p.PolicyKeys},
		{"exchange types", p.ExchangeTypes},
		{"arguments of exchanges", p.ExchangeArguments},
	} {
		if len(x.names) > 0 {
			parts = append(parts, x.what+" "+strings.Join(x.names, ", "))
		}
	}
	return strings.Join(parts, "; ")
}
