package repo

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/tests/tools"
)

var update = flag.Bool("update", false, "write testdata/surface.txt anew")

const surfaceFile = "testdata/surface.txt"

// surfacePackages are the packages whose exported names are listed with their users.
var surfacePackages = []string{"core/queue", "core/session", "core/vhost"}

// stdInterfaces are packages whose interfaces a method may implement without another user.
var stdInterfaces = []string{"container/heap", "encoding", "encoding/json", "fmt", "io", "sort"}

// TestSurface holds what the large packages export: an exported name needs a user in another package, and new users change the
// list. Fields and methods of interface types are not listed. No user is needed by a method that implements an interface, a type that
// another exported name mentions, and a constant of a type whose other constants are used.
func TestSurface(t *testing.T) {
	if !*update {
		tools.Want(t, "the type checker, on all that uses the core") // which takes a quarter of a minute
	}
	s := newSurface(t)
	var b strings.Builder
	fmt.Fprintln(&b, "# Exported names and who uses them; made by: go test ./tests/repo -run TestSurface -update")
	for _, dir := range surfacePackages {
		names := s.names(t, dir)
		mentioned := mentions(names)
		fmt.Fprintf(&b, "\n%s: %d names\n", dir, len(names))
		for _, n := range names {
			users := s.usersOf(n)
			if users == "" && !s.implements(n) && !mentioned[n.object] && !s.sibling(n, names) {
				t.Errorf("%s.%s is exported, and no other package uses it: unexport or delete it", dir, n.name)
			}
			fmt.Fprintf(&b, "  %s\n", strings.TrimSpace(n.name+"  "+users))
		}
	}
	if *update {
		if err := os.WriteFile(surfaceFile, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	listed, err := os.ReadFile(surfaceFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range changedLines(string(listed), b.String()) {
		t.Error(line)
	}
	if t.Failed() {
		t.Log("if that is as it should be: go test ./tests/repo -run TestSurface -update")
	}
}

// changedLines returns the lines that only one of two texts has.
func changedLines(listed, found string) (changed []string) {
	was, is := strings.Split(listed, "\n"), strings.Split(found, "\n")
	for _, line := range was {
		if !slices.Contains(is, line) {
			changed = append(changed, "- "+line)
		}
	}
	for _, line := range is {
		if !slices.Contains(was, line) {
			changed = append(changed, "+ "+line)
		}
	}
	return changed
}

// goPackage is what go list reports of a package.
type goPackage struct {
	ImportPath, Dir, Export            string
	GoFiles, TestGoFiles, XTestGoFiles []string
	Imports, TestImports, XTestImports []string
}

// listPackages returns packages and their dependencies, by import path, with compiled export data.
func listPackages(t *testing.T, patterns ...string) map[string]*goPackage {
	t.Helper()
	fields := "ImportPath,Dir,Export,GoFiles,TestGoFiles,XTestGoFiles,Imports,TestImports,XTestImports"
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-export", "-deps", "-json=" + fields}, patterns...)...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string]*goPackage{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		p := new(goPackage)
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
}

// surface knows the users of the listed packages.
type surface struct {
	imports    types.Importer
	interfaces []*types.Interface
	users      map[types.Object][]string // production first; tests are in brackets
}

func newSurface(t *testing.T) *surface {
	t.Helper()
	all := listPackages(t, append([]string{"./..."}, stdInterfaces...)...)
	fset := token.NewFileSet()
	s := &surface{users: map[types.Object][]string{}, imports: exportData(fset, all)}
	for _, path := range stdInterfaces {
		p, err := s.imports.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		s.addInterfaces(p)
	}
	for _, p := range all {
		dir, ours := strings.CutPrefix(p.ImportPath, module+"/")
		if !ours {
			continue
		}
		if p.imports(p.Imports) || slices.Contains(surfacePackages, dir) {
			s.use(t, fset, p, p.GoFiles, dir)
		}
		if p.imports(p.TestImports) || p.imports(p.XTestImports) {
			s.use(t, fset, p, slices.Concat(p.GoFiles, p.TestGoFiles), "["+dir+"]")
			s.use(t, fset, p, p.XTestGoFiles, "["+dir+"]")
		}
	}
	return s
}

// exportData imports packages from their compiled export data.
func exportData(fset *token.FileSet, all map[string]*goPackage) types.Importer {
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		p := all[path]
		if p == nil || p.Export == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(p.Export)
	})
}

// imports reports whether a listed package is among the imports.
func (*goPackage) imports(paths []string) bool {
	return slices.ContainsFunc(surfacePackages, func(dir string) bool { return slices.Contains(paths, module+"/"+dir) })
}

// use type-checks files of a package, and records the names that they use and the interfaces that they declare. It ignores
// errors: dependencies of tests have no export data, which hides no use of a listed package.
func (s *surface) use(t *testing.T, fset *token.FileSet, p *goPackage, names []string, user string) {
	t.Helper()
	var files []*ast.File
	for _, name := range names {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}}
	config := types.Config{Importer: s.imports, Error: func(error) {}, FakeImportC: true}
	_, _ = config.Check(p.ImportPath, fset, files, &info)
	for _, e := range info.Types {
		if i, ok := e.Type.(*types.Interface); ok && e.IsType() {
			s.interfaces = append(s.interfaces, i)
		}
	}
	for _, o := range info.Uses {
		if f, ok := o.(*types.Func); ok {
			o = f.Origin()
		}
		if plain := strings.Trim(user, "[]"); o.Pkg() == nil || o.Pkg().Path() == p.ImportPath || slices.Contains(s.users[o], plain) || slices.Contains(s.users[o], user) {
			continue
		}
		s.users[o] = append(s.users[o], user)
	}
}

func (s *surface) addInterfaces(p *types.Package) {
	for _, name := range p.Scope().Names() {
		if i, ok := p.Scope().Lookup(name).Type().Underlying().(*types.Interface); ok {
			s.interfaces = append(s.interfaces, i)
		}
	}
}

// exported is an exported name of a package: of a method with its type.
type exported struct {
	name   string
	object types.Object
}

// names returns what a package exports.
func (s *surface) names(t *testing.T, dir string) (names []exported) {
	t.Helper()
	p, err := s.imports.Import(module + "/" + dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range p.Scope().Names() {
		o := p.Scope().Lookup(name)
		if !o.Exported() {
			continue
		}
		names = append(names, exported{name, o})
		named, ok := o.Type().(*types.Named)
		if _, isType := o.(*types.TypeName); !isType || !ok {
			continue
		}
		for m := range types.NewMethodSet(types.NewPointer(named)).Methods() {
			if f := m.Obj().(*types.Func); f.Exported() && (len(m.Index()) == 1 || f.Pkg() == p && !receiver(f).Obj().Exported()) {
				names = append(names, exported{name + "." + f.Name(), f}) // its own, or one of an embedded type that nothing else exports
			}
		}
	}
	slices.SortFunc(names, func(a, b exported) int { return strings.Compare(a.name, b.name) })
	return names
}

// receiver returns the type that declares a method.
func receiver(f *types.Func) *types.Named {
	t := f.Signature().Recv().Type()
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	return t.(*types.Named)
}

// usersOf lists the users of a name, the tests among them last and in brackets.
func (s *surface) usersOf(n exported) string {
	users := slices.Clone(s.users[n.object])
	slices.SortFunc(users, func(a, b string) int {
		if t := strings.HasPrefix(a, "["); t != strings.HasPrefix(b, "[") {
			if t {
				return 1
			}
			return -1
		}
		return strings.Compare(a, b)
	})
	return strings.Join(users, " ")
}

// implements reports whether a method is part of an interface that its type implements.
func (s *surface) implements(n exported) bool {
	f, ok := n.object.(*types.Func)
	if !ok || f.Signature().Recv() == nil {
		return false
	}
	receiver := f.Signature().Recv().Type()
	if p, ok := receiver.(*types.Pointer); ok {
		receiver = p.Elem()
	}
	return f.Name() == "Error" || f.Name() == "Unwrap" || slices.ContainsFunc(s.interfaces, func(i *types.Interface) bool {
		m, _, _ := types.LookupFieldOrMethod(i, false, f.Pkg(), f.Name())
		return m != nil && types.Implements(types.NewPointer(receiver), i)
	})
}

// sibling reports whether a name is a constant, and another package uses a constant of its type.
func (s *surface) sibling(n exported, names []exported) bool {
	_, isConst := n.object.(*types.Const)
	return isConst && slices.ContainsFunc(names, func(o exported) bool {
		_, also := o.object.(*types.Const)
		return also && o.object.Type() == n.object.Type() && s.users[o.object] != nil
	})
}

// mentions returns the types that occur in signatures, constants, variables and exported fields.
func mentions(names []exported) map[types.Object]bool {
	found := map[types.Object]bool{}
	var visit func(types.Type)
	visit = func(t types.Type) {
		switch t := t.(type) {
		case *types.Named:
			found[t.Obj()] = true
		case interface{ Elem() types.Type }: // pointers, slices, arrays, maps, channels
			visit(t.Elem())
		case *types.Signature:
			for v := range t.Params().Variables() {
				visit(v.Type())
			}
			for v := range t.Results().Variables() {
				visit(v.Type())
			}
		case *types.Struct:
			for f := range t.Fields() {
				if f.Exported() {
					visit(f.Type())
				}
			}
		case *types.Interface:
			for m := range t.Methods() {
				visit(m.Type())
			}
		}
	}
	for _, n := range names {
		if _, isType := n.object.(*types.TypeName); isType {
			visit(n.object.Type().Underlying())
		} else {
			visit(n.object.Type())
		}
	}
	return found
}
