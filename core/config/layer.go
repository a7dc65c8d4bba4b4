package config

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
)

// layer is what one source says. koanf reads and flattens it; merging is left
// to the loader, because a value that a later source overrides is checked, too,
// and a value's source is part of the result.
type layer struct {
	said *koanf.Koanf
	// name is how this source spells a key, with sep between the levels.
	name func(key string) string
	sep  string
	term string // what a name is called here: "key" or "variable"
	// source tells where the layer's own name for a key was said.
	source func(name string) Source
}

// value returns what the layer says of key: a string, a []string, a map, or
// nil for a key without a value.
func (y *layer) value(key string) (v any, s Source, ok bool) {
	name := y.name(key)
	if !y.said.Exists(name) {
		return nil, Source{}, false
	}
	return y.said.Get(name), y.source(name), true
}

// names returns what the layer holds, in the order it was said as far as the
// source has one.
func (y *layer) names() []string {
	names := y.said.Keys()
	slices.SortStableFunc(names, func(a, b string) int { return y.source(a).Line - y.source(b).Line })
	return names
}

func same(key string) string { return key }

// readFile returns the layer of the YAML file at path. Its problems have no
// layer: they are reported and the rest of the file is used.
func readFile(path string) (*layer, []*Error) {
	d := &document{}
	k := koanf.New(".")
	if err := k.Load(file.Provider(path), d); err != nil {
		return nil, []*Error{{Problem: fileProblem(err), Value: path, HasValue: true, Source: Source{Kind: FromFile, Name: path}}}
	}
	at := func(line int) Source { return Source{Kind: FromFile, Name: path, Line: line} }
	var errs []*Error
	for _, p := range d.problems {
		errs = append(errs, &Error{Key: p.key, Problem: p.text, Source: at(p.line)})
	}
	return &layer{said: k, name: same, sep: ".", term: "key", source: func(name string) Source { return at(d.lines[name]) }}, errs
}

func fileProblem(err error) string {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Sprintf("cannot be read: %v", pathErr.Err)
	}
	return err.Error()
}

// readEnv returns the layer of the environment's CURFEW_ variables, under their
// own names.
func readEnv(environ []string) (*layer, error) {
	m := map[string]any{}
	for _, entry := range environ {
		name, v, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, envPrefix) && name != FileVariable && !ofClient(name) && !fromKubernetes(name, v) {
			m[name] = v
		}
	}
	k := koanf.New(".")
	err := k.Load(confmap.Provider(m, ""), nil)
	return &layer{said: k, name: envName, sep: "__", term: "variable", source: func(name string) Source { return Source{Kind: FromEnv, Name: name} }}, err
}

// FileVariable names the configuration file when no flag does.
const FileVariable = envPrefix + "CONFIG"

// ofClient reports whether a variable is of curfew ctl, which may be set in the
// broker's environment as well. Sections have two underscores behind them.
func ofClient(name string) bool {
	rest, ok := strings.CutPrefix(name, envPrefix+"CTL_")
	return ok && !strings.HasPrefix(rest, "_")
}

// Kubernetes gives every container variables for every service in its
// namespace; a service called "curfew" must not keep the broker from starting.
var (
	serviceVariable = regexp.MustCompile(`_SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)$`)
	portVariable    = regexp.MustCompile(`_PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$`)
	serviceAddress  = regexp.MustCompile(`^(tcp|udp|sctp)://`)
)

func fromKubernetes(name, v string) bool {
	if strings.Contains(name, "__") {
		return false
	}
	if serviceVariable.MatchString(name) {
		return true
	}
	m := portVariable.FindStringSubmatch(name)
	return m != nil && (m[1] != "" || serviceAddress.MatchString(v))
}

func readFlags(flags []Flag) (*layer, error) {
	m, names := map[string]any{}, map[string]string{}
	for _, f := range flags {
		m[f.Key], names[f.Key] = f.Value, f.Name
	}
	k := koanf.New(".")
	err := k.Load(confmap.Provider(m, ""), nil)
	return &layer{said: k, name: same, sep: ".", term: "key", source: func(name string) Source { return Source{Kind: FromFlag, Name: names[name]} }}, err
}
