package build

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// appFolder is where the program is in curfew's module.
const appFolder = "/cmd/curfew/app"

const mainPath = "curfew"

// mainModule is the module that is compiled.
type mainModule struct {
	tool    *goTool // its folder is the module's
	plugins []plugin
	folders map[string]string // absolute folders of modules that are read from one
	// version is the requested version of curfew; "" = curfew is read from a folder.
	version string
	exports []exports // of the plugins
}

// newModule makes a folder for a main module. It checks the folders of plugins first.
func newModule(t *goTool, plugins []plugin) (*mainModule, error) {
	m := &mainModule{tool: t, plugins: slices.Clone(plugins)}
	var err error
	if m.folders, err = t.workspace(); err != nil {
		return nil, err
	}
	if m.folders == nil {
		m.folders = make(map[string]string)
	}
	if err := m.addFolders(); err != nil {
		return nil, err
	}
	t.dir, err = os.MkdirTemp("", "curfew-build-")
	return m, err
}

func isFolder(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// addFolders replaces the workspace's modules by the command line's.
func (m *mainModule) addFolders() error {
	given := make(map[string]string)
	for i := range m.plugins {
		p := &m.plugins[i]
		if p.folder == "" {
			continue
		}
		dir, err := filepath.Abs(p.folder)
		if err != nil {
			return err
		}
		path, err := m.tool.moduleIn(dir)
		switch {
		case err != nil:
			return fmt.Errorf("--with %s: %w", p.pkg, err)
		case !within(p.pkg, path) || !isFolder(filepath.Join(dir, strings.TrimPrefix(p.pkg, path))):
			return fmt.Errorf("--with %s: the module in %s is %s, which has no such package", p.pkg, dir, path)
		case path == curfew:
			return fmt.Errorf("--with %s: %s is curfew itself, which the flag --curfew names", p.pkg, dir)
		case given[path] != "" && given[path] != dir:
			return fmt.Errorf("the module %s is in two folders: %s and %s", path, given[path], dir)
		}
		given[path] = dir
	}
	maps.Copy(m.folders, given)
	for _, p := range m.plugins {
		if p.folder != "" || p.version == "" {
			continue
		}
		path := m.local(p.pkg)
		if given[path] != "" {
			return fmt.Errorf("the module %s is in %s, and at %s: leave one of them out", path, given[path], p.version)
		}
		delete(m.folders, path) // the command line's version replaces the workspace's
	}
	return nil
}

// local returns the module of a package if it is read from a folder; if several contain the package, the innermost one; "" = none.
func (m *mainModule) local(pkg string) (best string) {
	for path := range m.folders {
		if within(pkg, path) && len(path) > len(best) {
			best = path
		}
	}
	return best
}

// choose decides which curfew to build: the requested one, the workspace's, or the running program's.
func (m *mainModule) choose(wanted string, running *debug.BuildInfo) error {
	version, versioned := strings.CutPrefix(wanted, "@")
	switch {
	case versioned:
		delete(m.folders, curfew)
		m.version = version
		return nil
	case wanted != "":
		return m.read(wanted)
	case m.folders[curfew] != "":
		return nil
	}
	version, folder := origin(running)
	if folder != "" {
		return m.read(folder)
	}
	if version == "" {
		return errors.New("it is not known which curfew to build, because this program was built from a folder or from sources that were changed.\n" +
			"Name the folder with its sources, --curfew PATH, or a published version, --curfew @VERSION")
	}
	m.version = version
	return nil
}

// read takes curfew from a folder.
func (m *mainModule) read(folder string) error {
	dir, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	path, err := m.tool.moduleIn(dir)
	if err == nil && path != curfew {
		err = fmt.Errorf("the module in %s is %s, want %s", dir, path, curfew)
	}
	if err != nil {
		return fmt.Errorf("--curfew: %w", err)
	}
	m.folders[curfew] = dir
	return nil
}

// origin returns where the curfew in a program came from: a version that others can get, or an existing folder.
func origin(running *debug.BuildInfo) (version, folder string) {
	if running == nil {
		return "", ""
	}
	if running.Main.Path == curfew {
		return obtainable(running.Main.Version), ""
	}
	for _, d := range running.Deps {
		switch {
		case d.Path != curfew:
		case d.Replace == nil:
			return obtainable(d.Version), ""
		case filepath.IsAbs(d.Replace.Path):
			if _, err := os.Stat(filepath.Join(d.Replace.Path, "go.mod")); err == nil {
				return "", d.Replace.Path
			}
		}
	}
	return "", ""
}

// obtainable returns the version, or "" if only the program's builder has it.
func obtainable(version string) string {
	if !exact.MatchString(version) || strings.Contains(version, "+dirty") {
		return ""
	}
	return version
}

// pruned is the Go version from which the go tool does not read the go.mod of each indirect requirement. The modules raise it.
const pruned = "1.21"

// resolve writes go.mod, and lets the go tool choose the versions of all modules.
func (m *mainModule) resolve() error {
	if err := m.writeSums(); err != nil {
		return err
	}
	if err := m.write("go.mod", "module "+mainPath+"\n\ngo "+pruned+"\n"); err != nil {
		return err
	}
	wanted := ""
	if m.version != "" {
		if _, err := m.tool.run("get", curfew+"@"+m.version); err != nil {
			return fmt.Errorf("curfew itself: %w; --curfew names another version, or a folder", err)
		}
		var err error
		if wanted, err = m.selected(); err != nil {
			return err
		}
	}
	if err := m.writeFolders(); err != nil {
		return err
	}
	if args := m.queries(); len(args) > 0 {
		if _, err := m.tool.run(append([]string{"get"}, args...)...); err != nil {
			return fmt.Errorf("the versions of the modules: %w", err)
		}
	}
	packages, err := m.list()
	if err != nil {
		return err
	}
	if app := packages[curfew+appFolder]; wanted != "" && app.Module != nil && app.Module.Version != wanted {
		return m.refuseUpgrade(wanted, app.Module.Version)
	}
	return m.findExports(packages)
}

// writeSums starts go.sum with the sums in the folders' modules, so that they need not be requested.
func (m *mainModule) writeSums() error {
	var sums []string
	for _, dir := range m.folders {
		b, err := os.ReadFile(filepath.Join(dir, "go.sum"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for line := range strings.Lines(string(b)) { // the last line may lack a line break
			sums = append(sums, strings.TrimSpace(line)+"\n")
		}
	}
	slices.Sort(sums)
	return m.write("go.sum", strings.Join(slices.Compact(sums), ""))
}

// writeFolders adds the modules that are read from folders to go.mod.
func (m *mainModule) writeFolders() error {
	file := filepath.Join(m.tool.dir, "go.mod")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var b strings.Builder
	b.Write(text)
	for _, path := range slices.Sorted(maps.Keys(m.folders)) {
		if path == curfew || slices.ContainsFunc(m.plugins, func(p plugin) bool { return m.local(p.pkg) == path }) {
			fmt.Fprintf(&b, "require %q %s\n", path, m.wanted(path))
		}
		fmt.Fprintf(&b, "replace %q => %q\n", path, m.folders[path])
	}
	return os.WriteFile(file, []byte(b.String()), 0o600)
}

// wanted returns the version of a module in a folder.
func (m *mainModule) wanted(path string) string {
	for _, p := range m.plugins {
		if p.version != "" && m.local(p.pkg) == path {
			return p.version
		}
	}
	return absent(path)
}

// queries returns the arguments of "go get": the packages that are not read from folders.
func (m *mainModule) queries() (args []string) {
	for _, p := range m.plugins {
		if m.local(p.pkg) == "" && !within(p.pkg, curfew) {
			args = append(args, p.pkg+"@"+cmp.Or(p.version, "latest"))
		}
	}
	return args
}

// selected returns the version of curfew in the main module.
func (m *mainModule) selected() (string, error) {
	var l struct{ Version string }
	err := m.tool.decode(&l, "list", "-mod=mod", "-m", "-json", curfew)
	return l.Version, err
}

// refuseUpgrade reports which plugins need a later curfew than the requested one. Curfew in a folder may have any version.
func (m *mainModule) refuseUpgrade(wanted, got string) error {
	graph, err := m.tool.run("mod", "graph")
	if err != nil {
		return err
	}
	var needing []string
	for line := range strings.Lines(string(graph)) {
		from, to, _ := strings.Cut(strings.TrimSpace(line), " ")
		if to == curfew+"@"+got && strings.Contains(from, "@") {
			needing = append(needing, from)
		}
	}
	return fmt.Errorf("%s needs curfew %s, and %s is to be built: use an earlier version of it, or --curfew @%s",
		cmp.Or(strings.Join(needing, ", "), "a plugin"), got, wanted, got)
}

// listed is the description of a package by "go list".
type listed struct {
	ImportPath, Dir, Name string
	GoFiles, CgoFiles     []string
	Standard              bool
	Module                *struct{ Version string }
	Error                 *struct{ Err string }
}

// list loads curfew's program and the plugins' packages with all their imports, which fixes the versions, and describes them.
func (m *mainModule) list() (map[string]listed, error) {
	args := []string{"list", "-mod=mod", "-e", "-json=ImportPath,Dir,Name,GoFiles,CgoFiles,Standard,Module,Error", curfew + appFolder}
	for _, p := range m.plugins {
		args = append(args, p.pkg)
	}
	out, err := m.tool.run(args...)
	if err != nil {
		return nil, err
	}
	packages := make(map[string]listed)
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var l listed
		if err := d.Decode(&l); err != nil {
			return nil, fmt.Errorf("go list printed no such JSON: %w", err)
		}
		packages[l.ImportPath] = l
	}
	return packages, nil
}

// findExports finds the plugins that the packages export. Its error joins those of all packages.
func (m *mainModule) findExports(packages map[string]listed) error {
	var errs []error
	for _, p := range m.plugins {
		x, err := exported(p.pkg, packages[p.pkg])
		m.exports = append(m.exports, x)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (m *mainModule) write(name, text string) error {
	return os.WriteFile(filepath.Join(m.tool.dir, name), []byte(text), 0o600)
}

// writeMain writes the program.
func (m *mainModule) writeMain() error {
	var imports, adds strings.Builder
	for i, p := range m.plugins {
		fmt.Fprintf(&imports, "\tplugin%d %q\n", i+1, p.pkg)
		factories := fmt.Sprintf("plugin%d.%s", i+1, m.exports[i].name)
		if m.exports[i].several {
			factories += "..."
		}
		fmt.Fprintf(&adds, "\tplugins = append(plugins, app.From(%q, %s)...)\n", p.pkg, factories)
	}
	return m.write("main.go", fmt.Sprintf(mainText, curfew, imports.String(), adds.String()))
}

const mainText = `// Command curfew is the broker with plugins of other modules. "curfew build" wrote it.
package main

import (
	"%[1]s/cmd/curfew/app"
	"%[1]s/sdk/hook"

%[2]s)

func main() {
	var plugins []hook.Factory
%[3]s	app.Main(plugins...)
}
`
