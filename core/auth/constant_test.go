package auth

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// secret is what the names of secrets look like.
var secret = regexp.MustCompile(`(?i)^(password|secret|sum|digest)$`)

// Secrets are compared in constant time: neither with == nor with functions that stop at the first difference.
func TestSecretsAreComparedInConstantTime(t *testing.T) {
	compared := 0
	for _, folder := range []string{".", "../mgmt"} {
		names, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if !strings.HasSuffix(name, "_test.go") {
				compared += checkComparisons(t, name)
			}
		}
	}
	if compared == 0 {
		t.Error("no secret is compared anywhere: this test looks for the wrong names")
	}
}

// checkComparisons complains of every careless comparison in a file, and counts the careful ones.
func checkComparisons(t *testing.T, name string) (careful int) {
	t.Helper()
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, name, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		between, with := comparison(n)
		switch {
		case !isSecret(between):
		case with == "ConstantTimeCompare":
			careful++
		default:
			t.Errorf("%s: a secret is compared with %s, not with subtle.ConstantTimeCompare", files.Position(n.Pos()), with)
		}
		return true
	})
	return careful
}

// comparison returns what a node compares, and how; nil for nodes that compare nothing. To compare with a constant gives nothing
// away.
func comparison(n ast.Node) (between []ast.Expr, with string) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if n.Op == token.EQL || n.Op == token.NEQ {
			between, with = []ast.Expr{n.X, n.Y}, n.Op.String()
		}
	case *ast.CallExpr:
		if f, ok := n.Fun.(*ast.SelectorExpr); ok && (strings.Contains(f.Sel.Name, "Equal") || strings.Contains(f.Sel.Name, "Compare")) {
			between, with = n.Args, f.Sel.Name
		}
	}
	for _, e := range between {
		switch e := e.(type) {
		case *ast.BasicLit:
			return nil, ""
		case *ast.Ident:
			if e.Name == "nil" {
				return nil, ""
			}
		}
	}
	return between, with
}

// isSecret reports whether one of the expressions is a secret, by its name, perhaps converted.
func isSecret(all []ast.Expr) bool {
	for _, e := range all {
		if c, ok := e.(*ast.CallExpr); ok && len(c.Args) == 1 {
			e = c.Args[0]
		}
		if s, ok := e.(*ast.SelectorExpr); ok {
			e = s.Sel
		}
		if id, ok := e.(*ast.Ident); ok && secret.MatchString(id.Name) {
			return true
		}
	}
	return false
}

// A wrong password takes as many rounds with a user whose hash is a fast one, as RabbitMQ's are, as with one who does not exist: who
// asks cannot tell them apart. What it allocates tells whether the rounds were made, on any machine.
func TestWrongPasswordsTakeAsLong(t *testing.T) {
	v := newVerifier()
	if v.nobody.iterations != iterations {
		t.Errorf("for nobody there are %d rounds, want %d", v.nobody.iterations, iterations)
	}
	v.nobody.iterations = publicIterations
	fast, err := ParseHash("yoEQX3XXn7/nMp5dHbgKYxBHhbRThIAwRXg5clbdMp5XGtzc", string(SHA256))
	if err != nil {
		t.Fatal(err)
	}
	allocated := func(h *Hash) float64 { return testing.AllocsPerRun(10, func() { v.matches(h, "wrong") }) }
	if got, want := allocated(&fast), allocated(&v.nobody); got < want {
		t.Errorf("%v allocations with a fast hash, want at least %v, those for nobody", got, want)
	}
	slow, err := derive("right", publicIterations)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := allocated(&slow), allocated(&v.nobody); got != want {
		t.Errorf("%v allocations with a slow hash, want %v, once as many as for nobody", got, want)
	}
}
