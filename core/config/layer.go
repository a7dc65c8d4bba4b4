package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
)

// layer is one source. koanf reads and flattens it. The loader merges the layers itself, because it also checks values that a later source
// overrides, and reports the source of each.
type layer struct {
	said *koanf.Koanf
	// name returns this source's name for a key, with sep between the levels.
	name func(key string) string
	sep  string
	term string // this source's word for a name: "key" or "variable"
	// source returns where one of the layer's own names was set.
	source func(name string) Source
}

// value returns the layer's value for key: a string, a []string, a map, or nil for a key without a value.
func (y *layer) value(key string) (v any, s Source, ok bool) {
	name := y.name(key)
	if !y.said.Exists(name) {
		return nil, Source{}, false
	}
	return y.said.Get(name), y.source(name), true
}

// names returns the layer's names, in the order of the source if it has one.
func (y *layer) names() []string {
	names := y.said.Keys()
	slices.SortStableFunc(names, func(a, b string) int { return y.source(a).Line - y.source(b).Line })
	return names
}

func same(key string) string { return key }

// readFile returns the layer of the YAML file at path, and the errors of unreadable keys, which the layer omits.
func readFile(path string) (*layer, []*Error) {
	d := &document{}
	k := koanf.New(".")
	if err := k.Load(file.Provider(path), d); err != nil {
		return nil, []*Error{{Problem: fileProblem(path, err), Value: path, HasValue: true, Source: Source{Kind: FromFile, Name: path}}}
	}
	at := func(line int) Source { return Source{Kind: FromFile, Name: path, Line: line} }
	var errs []*Error
	for _, p := range d.problems {
		errs = append(errs, &Error{Key: p.key, Problem: p.text, Source: at(p.line)})
	}
	return &layer{said: k, name: same, sep: ".", term: "key", source: func(name string) Source { return at(d.lines[name]) }}, errs
}

func fileProblem(path string, err error) string {
	switch {
	case errors.Is(err, errRabbitConf):
		return "is in RabbitMQ's format, KEY = VALUE, not YAML; this prints it in Curfew's: curfew config --from " + shellWord(path)
	case errors.Is(err, errErlangTerms):
		return "holds Erlang terms, as RabbitMQ's advanced.config, not YAML, and cannot be translated; a rabbitmq.conf, KEY = VALUE, can: curfew config --from rabbitmq.conf"
	}
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Sprintf("cannot be read: %v", pathErr.Err)
	}
	return err.Error()
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,][A-Za-z0-9_./:@%+=,-]*$`)

// shellWord quotes s for a shell.
func shellWord(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// readEnv returns the layer of the environment's CURFEW_ variables.
func readEnv(environ []string) *layer {
	m := map[string]any{}
	for _, entry := range environ {
		name, v, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, envPrefix) && name != FileVariable && !ofClient(name) && !fromKubernetes(name, v) {
			m[name] = v
		}
	}
	source := func(name string) Source { return Source{Kind: FromEnv, Name: name} }
	return &layer{said: flat(m), name: envName, sep: "__", term: "variable", source: source}
}

func flat(m map[string]any) *koanf.Koanf {
	k := koanf.New(".")
	if err := k.Load(confmap.Provider(m, ""), nil); err != nil {
		panic(err) // a map always loads
	}
	return k
}

// FileVariable is the variable that names the configuration file if no flag does.
const FileVariable = envPrefix + "CONFIG"

// ofClient reports whether a variable belongs to curfew ctl; it may be set in the broker's environment, too. The broker's own sections are
// followed by two underscores.
func ofClient(name string) bool {
	rest, ok := strings.CutPrefix(name, envPrefix+"CTL_")
	return ok && !strings.HasPrefix(rest, "_")
}

// Kubernetes sets variables for every service of a namespace. A service called "curfew" must not prevent the broker from starting.
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

func readFlags(flags []Flag) *layer {
	m, names := map[string]any{}, map[string]string{}
	for _, f := range flags {
		m[f.Key], names[f.Key] = f.Value, f.Name
	}
	source := func(name string) Source { return Source{Kind: FromFlag, Name: names[name]} }
	return &layer{said: flat(m), name: same, sep: ".", term: "key", source: source}
}

// entries returns the keys below a section, in all layers.
func (l *loader) entries(section string) []string {
	l.openEnded = append(l.openEnded, section)
	found := map[string]bool{}
	for _, y := range l.layers {
		prefix := y.name(section) + y.sep
		for _, name := range y.names() {
			if rest, ok := strings.CutPrefix(name, prefix); ok {
				found[y.key(rest, found)] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// key returns the key for one of the layer's names. Variables spell a dash and an underscore alike, so each part is
// matched with a known key that is spelt like it; if there is none, it is taken for one with dashes.
func (y *layer) key(name string, known map[string]bool) string {
	if y.sep == "." {
		return name
	}
	var parts []string
	for part := range strings.SplitSeq(name, y.sep) {
		parts = append(parts, strings.ToLower(strings.ReplaceAll(part, "_", "-")))
		for k := range known {
			if other := strings.Split(k, "."); len(other) >= len(parts) && slices.EqualFunc(other[:len(parts)], parts, alike) {
				copy(parts, other)
			}
		}
	}
	return strings.Join(parts, ".")
}

// alike reports whether two parts of keys are spelt alike in a variable.
func alike(a, b string) bool { return envName(a) == envName(b) }
