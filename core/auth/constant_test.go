package auth

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

// secret matches the names of variables that hold secrets.
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

// checkComparisons reports every careless comparison in a file, and counts the careful ones.
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

// comparison returns what a node compares, and how; nil for nodes that compare nothing. A comparison with a constant reveals nothing.
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

// isSecret reports whether one of the expressions is a secret, judging by its name. It looks through conversions.
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

// A wrong password takes the same number of rounds with every name, with or without a user, and with every kind of hash. Otherwise the time
// would show which users exist. A wrong password for guest, whose hash is a fast one because its password is public, used to be refused in a
// thousandth of the time.
func TestWrongPasswordsTakeAsLong(t *testing.T) {
	s := New(Options{})
	if err := s.CreateDefaults(); err != nil {
		t.Fatal(err)
	}
	put(t, s, "fast", "right")
	imported, err := ParseHash("yoEQX3XXn7/nMp5dHbgKYxBHhbRThIAwRXg5clbdMp5XGtzc", string(SHA256))
	if err != nil {
		t.Fatal(err)
	}
	costly := Hash{algorithm: PBKDF2, iterations: 2 * iterations, salt: "salt", sum: "sum"}
	for name, h := range map[string]Hash{"imported": imported, "passwordless": {}, "costly": costly} {
		if _, err := s.Set(Account{Name: name, Password: h}); err != nil {
			t.Fatal(err)
		}
	}
	spent := uint32(0)
	s.verifier.spend = func(rounds uint32, _ string) { spent += rounds }
	for i, name := range []string{"nobody", "nobody else", "guest", "fast", "imported", "passwordless", "costly"} {
		for _, loopback := range []bool{true, false} {
			u, _ := s.Lookup(name)
			spent = u.Password.rounds()
			password := "wrong"
			if name == "guest" && !loopback {
				password = "guest"
			}
			if _, err := s.Authenticate(t.Context(), name, password, Origin{Host: "192.0.2.1", Loopback: loopback, Now: hook.Instant(i)}); err == nil {
				t.Errorf("%s was let in", name)
			}
			if spent != 2*iterations {
				t.Errorf("%s, from here %v: %d rounds, want %d, as many as that of the user with most", name, loopback, spent, 2*iterations)
			}
		}
	}
}

// If all new passwords use RabbitMQ's hashes, which take no time, a wrong password takes no time either.
func TestWrongPasswordsTakeNoTimeWithFastHashes(t *testing.T) {
	s := New(Options{Hashing: SHA512})
	if err := s.CreateDefaults(); err != nil {
		t.Fatal(err)
	}
	s.verifier.spend = func(rounds uint32, _ string) { t.Errorf("%d rounds", rounds) }
	for _, name := range []string{"guest", "nobody"} {
		if _, err := s.Authenticate(t.Context(), name, "wrong", Origin{Loopback: true}); err == nil {
			t.Errorf("%s was let in", name)
		}
	}
}
