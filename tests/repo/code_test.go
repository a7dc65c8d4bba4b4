package repo

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestNoInit(t *testing.T) {
	for _, s := range sources(t) {
		for _, decl := range s.ast.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s: no init functions: cmd/curfew lists everything that has to be registered", s.at(f.Pos()))
			}
		}
	}
}

var (
	unfinished = regexp.MustCompile(`\b(TODO|FIXME|XXX)\b`)
	issue      = regexp.MustCompile(`#[0-9]+`)
)

func TestUnfinishedWorkHasAnIssue(t *testing.T) {
	for _, s := range sources(t) {
		for _, group := range s.ast.Comments {
			for _, c := range group.List {
				if unfinished.MatchString(c.Text) && !issue.MatchString(c.Text) {
					t.Errorf("%s: do it now or name the issue (#12) that will: %s", s.at(c.Pos()), c.Text)
				}
			}
		}
	}
}

// Inside f.Fuzz a skip passes over one input of millions, and its reason would only cost time.
func TestSkipsSayWhy(t *testing.T) {
	for _, s := range sources(t) {
		ast.Inspect(s.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if ok && silentSkip(call) {
				t.Errorf("%s: skips without saying why: give t.Skip the reason", s.at(call.Pos()))
			}
			return !ok || !fuzzBody(call)
		})
	}
}

func fuzzBody(call *ast.CallExpr) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "Fuzz"
}

// silentSkip reports whether the call is t.SkipNow(), t.Skip() or t.Skip("").
func silentSkip(call *ast.CallExpr) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	recv, ok := sel.X.(*ast.Ident)
	if !ok || !slices.Contains([]string{"t", "b", "f", "tb"}, recv.Name) {
		return false
	}
	switch sel.Sel.Name {
	case "SkipNow":
		return true
	case "Skip", "Skipf":
		return len(call.Args) == 0 || emptyString(call.Args[0])
	}
	return false
}

func emptyString(e ast.Expr) bool {
	lit, ok := e.(*ast.BasicLit)
	return ok && (lit.Value == `""` || lit.Value == "``")
}

// runners are the only folders that start goroutines: everything else is plain methods on plain structs.
var runners = []string{"cmd", "core/broker", "core/journal", "core/cluster", "core/otlp", "core/peer", "core/queue", "core/slab", "core/store", "core/wire", "core/wlog", "tests"}

func TestGoroutinesOnlyInRunners(t *testing.T) {
	for _, s := range sources(t) {
		if s.isTest() || slices.ContainsFunc(runners, func(dir string) bool { return under(s.dir(), dir) }) {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			if g, ok := n.(*ast.GoStmt); ok {
				t.Errorf("%s: only %v start goroutines", s.at(g.Pos()), runners)
			}
			return true
		})
	}
}

// lockers are the plugins that may lock, or use atomic values: publishers share the caches of an exchange.
var lockers = []string{"plugins/dedup", "plugins/delay"}

// A plugin decides; it does not wait, lock or log. The WebAssembly host needs a pool of instances and is let off.
func TestPluginsArePassive(t *testing.T) {
	for _, s := range sources(t) {
		if s.isTest() || !under(s.dir(), "plugins") || under(s.dir(), "plugins/wasm") {
			continue
		}
		for _, pkg := range []string{"sync", "sync/atomic", "log/slog", "os", "net", "context"} {
			if strings.HasPrefix(pkg, "sync") && slices.Contains(lockers, s.dir()) {
				continue
			}
			if imports(s, pkg) {
				t.Errorf("%s imports %s: a plugin holds no goroutine, lock, logger or clock and does no I/O", s.path, pkg)
			}
		}
	}
}

// Every package with tests checks in TestMain that they leave no goroutine behind.
func TestTestsLookForLeaks(t *testing.T) {
	tested, checked := map[string]bool{}, map[string]bool{}
	for _, s := range sources(t) {
		if !s.isTest() {
			continue
		}
		tested[s.dir()] = true
		if imports(s, "go.uber.org/goleak") {
			checked[s.dir()] = true
		}
	}
	for dir := range tested {
		if !checked[dir] {
			t.Errorf("%s: no TestMain calls goleak.VerifyTestMain", dir)
		}
	}
}
