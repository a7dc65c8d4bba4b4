package repo

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// topLevel is all that may stand at the root of the repository.
var topLevel = []string{
	"cmd", "core", "plugins", "policies", "sdk", "wasm-examples", "tests",
	".ci", ".github", ".gitignore", ".golangci.yml",
	"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "go.mod", "go.sum",
}

func TestTopLevel(t *testing.T) {
	var seen []string
	for _, name := range files(t) {
		first, _, _ := strings.Cut(name, "/")
		seen = append(seen, first)
	}
	slices.Sort(seen)
	for _, name := range slices.Compact(seen) {
		if !slices.Contains(topLevel, name) {
			t.Errorf("%s stands at the root, where only these may: %s", name, strings.Join(topLevel, " "))
		}
	}
}

func TestFoldersHaveREADME(t *testing.T) {
	names := files(t)
	for _, parent := range []string{"plugins", "sdk", "wasm-examples"} {
		for _, dir := range folders(t, parent) {
			if !slices.Contains(names, dir+"/README.md") {
				t.Errorf("%s has no README.md", dir)
			}
		}
	}
}

// A plugin is x.go, x_test.go and a README.md, so that whoever opens one knows where to look in all of them,
// and runs the conformance suite.
func TestPluginFolders(t *testing.T) {
	names, all := files(t), sources(t)
	for _, dir := range folders(t, "plugins") {
		x := dir + "/" + path.Base(dir)
		for _, want := range []string{x + ".go", x + "_test.go"} {
			if !slices.Contains(names, want) {
				t.Errorf("%s is missing", want)
			}
		}
		if !slices.ContainsFunc(all, func(s source) bool { return s.dir() == dir && s.isTest() && imports(s, module+"/sdk/hooktest") }) {
			t.Errorf("no test in %s runs sdk/hooktest", dir)
		}
	}
}

func imports(s source, pkg string) bool {
	for _, spec := range s.ast.Imports {
		if spec.Path.Value == `"`+pkg+`"` {
			return true
		}
	}
	return false
}
