// Package repo holds tests about the repository itself: which package may import which, what lies where,
// and that the documentation still says what the code does. They read files, and run nothing but git and go list.
package repo

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/tests/process"
)

const (
	root   = "../.."
	module = "github.com/curfewmq/curfew"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, process.Cleanup()) }

// repoFiles are the repository's files as slash paths from its root: what git tracks or would add,
// so that build products and a broker's data never count.
var repoFiles = sync.OnceValues(func() ([]string, error) {
	out, err := exec.Command("git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return walkFiles() // a source archive, or a machine without git
	}
	names := strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
	return slices.DeleteFunc(names, func(name string) bool {
		_, err := os.Lstat(filepath.Join(root, name)) // deleted, not yet committed
		return err != nil
	}), nil
})

// What a build or a run leaves behind, at the root and anywhere; .gitignore names them too.
var (
	rootProducts = []string{".git", "bin", "dist", "curfew", "curfew-data"}
	products     = []string{"node_modules", "target"}
)

func walkFiles() (names []string, err error) {
	err = fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case slices.Contains(rootProducts, name) || slices.Contains(products, d.Name()):
			if d.IsDir() {
				return fs.SkipDir
			}
		case d.Type().IsRegular():
			names = append(names, name)
		}
		return nil
	})
	return names, err
}

func files(t *testing.T) []string {
	t.Helper()
	names, err := repoFiles()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(names, "go.mod") {
		t.Fatalf("%s is not the repository's root: it has no go.mod among %d files", root, len(names))
	}
	return names
}

// source is one parsed Go file of the repository.
type source struct {
	path string // slash path from the root
	ast  *ast.File
	fset *token.FileSet
}

func (s source) dir() string  { return path.Dir(s.path) }
func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

// at is the position of a node, written so that an editor can follow it.
func (s source) at(pos token.Pos) string {
	p := s.fset.Position(pos)
	return s.path + ":" + strconv.Itoa(p.Line)
}

// sources returns every Go file of the module, which the tests only read. Test data and guest code with a go.mod of their own are not part of
// it.
func sources(t *testing.T) []source {
	t.Helper()
	files(t)
	all, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var parsed = sync.OnceValues(func() (all []source, err error) {
	names, err := repoFiles()
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	for _, name := range names {
		if path.Ext(name) != ".go" || foreign(name, names) {
			continue
		}
		f, err := parser.ParseFile(fset, filepath.Join(root, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		all = append(all, source{path: name, ast: f, fset: fset})
	}
	return all, nil
})

// foreign reports whether the go command leaves the file out of ./...
func foreign(name string, names []string) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		base := path.Base(dir)
		if base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
			return true
		}
		if slices.Contains(names, dir+"/go.mod") {
			return true
		}
	}
	return false
}

// under reports whether the slash path lies in the folder, or is it.
func under(name, folder string) bool {
	return name == folder || strings.HasPrefix(name, folder+"/")
}

// folders are the direct subfolders of a folder.
func folders(t *testing.T, parent string) []string {
	t.Helper()
	var found []string
	for _, name := range files(t) {
		rest, ok := strings.CutPrefix(name, parent+"/")
		if child, _, deeper := strings.Cut(rest, "/"); ok && deeper {
			found = append(found, path.Join(parent, child))
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
