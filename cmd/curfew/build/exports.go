package build

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
)

// exports describes how a package exports its plugins.
type exports struct {
	name    string // of the variable
	several bool   // it is a list
}

// The names of the variables that may hold plugins.
const (
	one  = "Factory"
	many = "Factories"
)

// exported looks for the plugins of a package. The compiler checks the variables' types.
func exported(pkg string, l listed) (x exports, err error) {
	switch {
	case l.Error != nil:
		return x, fmt.Errorf("the package %s: %s", pkg, l.Error.Err)
	case l.ImportPath == "":
		return x, fmt.Errorf("the package %s: go list does not know it", pkg)
	case l.Standard:
		return x, fmt.Errorf("the package %s is Go's own: a plugin's package needs another import path", pkg)
	case l.Name == "main":
		return x, fmt.Errorf("the package %s is a program: a plugin's package has another name than main", pkg)
	}
	declared := make(map[string]string)
	for _, name := range slices.Concat(l.GoFiles, l.CgoFiles) {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(l.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return x, fmt.Errorf("the package %s: %w", pkg, err)
		}
		declare(declared, file)
	}
	return choose(pkg, declared)
}

const variable = "variable"

func choose(pkg string, declared map[string]string) (x exports, err error) {
	switch {
	case declared[many] == variable:
		return exports{name: many, several: true}, nil
	case declared[one] == variable:
		return exports{name: one}, nil
	}
	const want = `a plugin's package has "var Factory = hook.NewFactory(...)", or "var Factories" with a list of them`
	for _, name := range []string{one, many} {
		if what := declared[name]; what != "" {
			return x, fmt.Errorf("the package %s: its %s is a %s and no variable; %s", pkg, name, what, want)
		}
	}
	return x, fmt.Errorf("the package %s exports no plugin: %s", pkg, want)
}

// declare records a file's top-level declarations that have one of these names.
func declare(declared map[string]string, file *ast.File) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				declared[d.Name.Name] = "function"
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				declareSpec(declared, d.Tok, s)
			}
		}
	}
}

func declareSpec(declared map[string]string, kind token.Token, s ast.Spec) {
	switch s := s.(type) {
	case *ast.TypeSpec:
		declared[s.Name.Name] = "type"
	case *ast.ValueSpec:
		what := variable
		if kind == token.CONST {
			what = "constant"
		}
		for _, n := range s.Names {
			declared[n.Name] = what
		}
	}
}
