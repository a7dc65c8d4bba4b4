package page

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// The modules are sent as one file: sixty small files compress to a third more, and a browser would discover each only in the one before.
// Each module becomes a function that is called once, after the modules that it needs. The joiner knows only the forms of import and export
// that the files use, each on a line of its own, and refuses all others: a test finds them.
var (
	importing = regexp.MustCompile(`(?m)^import (?:(\w+)(?:, )?)?(?:\{([^}\n]*)\} ?)? ?from '([^'\n]+)';$`)
	exporting = regexp.MustCompile(`(?m)^export (default )?((?:async )?function|const|class) (\w+)`)
	loading   = regexp.MustCompile(`\bimport\('([^'\n]+)'\)`)
	unjoined  = regexp.MustCompile(`(?m)^(?:import|export)\b.*|\bimport\(.*`)
)

// joiner puts modules together.
type joiner struct {
	modules map[string][]byte // by name, such as views/now.js
	ids     map[string]string // name, in the joined module, of each module's exports
	written map[string]bool   // false while a module waits for the modules that it needs
	loaded  []string          // modules that others load when they run
	out     bytes.Buffer
}

// join returns one module that does the same as entry.
func join(modules map[string][]byte, entry string) ([]byte, error) {
	j := &joiner{modules: modules, ids: map[string]string{}, written: map[string]bool{entry: false}}
	if err := j.needs(entry); err != nil {
		return nil, err
	}
	for len(j.loaded) > 0 {
		name := j.loaded[0]
		j.loaded = j.loaded[1:]
		if err := j.add(name); err != nil {
			return nil, err
		}
	}
	err := j.write(entry) // the last: it begins to run at once
	return j.out.Bytes(), err
}

// add writes a module behind the modules that it needs, unless it is written already.
func (j *joiner) add(name string) error {
	written, begun := j.written[name]
	switch {
	case written:
		return nil
	case begun:
		return fmt.Errorf("%s needs itself, by way of others", name)
	case j.modules[name] == nil:
		return fmt.Errorf("there is no %s", name)
	}
	j.written[name] = false
	if err := j.needs(name); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return j.write(name)
}

// needs writes the modules that a module imports, and remembers the modules that it loads at run time.
func (j *joiner) needs(name string) error {
	for _, m := range loading.FindAllSubmatch(j.modules[name], -1) {
		j.loaded = append(j.loaded, beside(name, m[1]))
	}
	for _, m := range importing.FindAllSubmatch(j.modules[name], -1) {
		if err := j.add(beside(name, m[3])); err != nil {
			return err
		}
	}
	return nil
}

// beside returns the module that another one names.
func beside(name string, relative []byte) string { return path.Join(path.Dir(name), string(relative)) }

// write writes a module as a function. Modules that it loads may come behind it, because nothing is loaded before the whole file has run.
func (j *joiner) write(name string) error {
	text := importing.ReplaceAllFunc(j.modules[name], func(line []byte) []byte {
		m := importing.FindSubmatch(line)
		names := strings.ReplaceAll(string(m[2]), " as ", ": ")
		if len(m[1]) > 0 {
			names = strings.TrimSuffix("default: "+string(m[1])+", "+names, ", ")
		}
		return []byte("const {" + names + "} = " + j.id(beside(name, m[3])) + ";")
	})
	var exports []string
	text = exporting.ReplaceAllFunc(text, func(begin []byte) []byte {
		m := exporting.FindSubmatch(begin)
		export := string(m[3])
		if len(m[1]) > 0 {
			export = "default: " + export
		}
		exports = append(exports, export)
		return []byte(string(m[2]) + " " + string(m[3]))
	})
	text = loading.ReplaceAllFunc(text, func(load []byte) []byte {
		return []byte("Promise.resolve(" + j.id(beside(name, loading.FindSubmatch(load)[1])) + ")")
	})
	if form := unjoined.Find(text); form != nil {
		return fmt.Errorf("%s: modules that are joined cannot have %q", name, form)
	}
	j.written[name] = true
	fmt.Fprintf(&j.out, "// %s\nconst %s = (() => {\n%s\nreturn {%s};\n})();\n", name, j.id(name), text, strings.Join(exports, ", "))
	return nil
}

// id returns the name of a module's exports.
func (j *joiner) id(name string) string {
	if j.ids[name] == "" {
		j.ids[name] = "$" + strconv.Itoa(len(j.ids)+1)
	}
	return j.ids[name]
}
