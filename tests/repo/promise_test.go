package repo

import (
	"bytes"
	"fmt"
	"go/token"
	"go/types"
	"os"
	"slices"
	"strings"
	"testing"
)

const promiseFile = "testdata/hook.txt"

// growing are interfaces of sdk/hook that the broker implements: they may get methods. Plugins implement the others.
var growing = []string{"Queue", "Source"}

// counts are constants that grow with those that they count.
var counts = []string{"Parts", "Reasons"}

// TestHookPromise holds what sdk/hook promises to plugins: a name that is listed stays, with its type and its value. New names are
// added by -update. A promise is never changed: the list of a release is edited by hand only to undo what was never released.
func TestHookPromise(t *testing.T) {
	found := promises(t)
	text, err := os.ReadFile(promiseFile)
	if err != nil && !*update {
		t.Fatal(err)
	}
	listed := strings.Split(strings.TrimSpace(string(text)), "\n")[1:]
	for _, c := range broken(listed, found) {
		t.Error(c)
	}
	if *update && !t.Failed() {
		var b bytes.Buffer
		fmt.Fprintln(&b, "# What sdk/hook promises to plugins; lines are added by: go test ./tests/repo -run TestHookPromise -update")
		fmt.Fprintln(&b, strings.Join(found, "\n"))
		if err := os.WriteFile(promiseFile, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, line := range found {
		if !slices.Contains(listed, line) {
			t.Errorf("not listed yet: %s; go test ./tests/repo -run TestHookPromise -update", line)
		}
	}
}

// broken returns the promises that are not kept.
func broken(listed, found []string) (complaints []string) {
	for _, line := range listed {
		if !slices.Contains(found, line) {
			complaints = append(complaints, "sdk/hook promised, and plugins of others use: "+line)
		}
	}
	for _, line := range found {
		name, ok := strings.CutPrefix(line, "interface ")
		if !ok || slices.Contains(listed, line) {
			continue
		}
		name, _, _ = strings.Cut(name, ".")
		known := slices.ContainsFunc(listed, func(l string) bool { return strings.HasPrefix(l, "interface "+name+".") })
		if known && !slices.Contains(growing, name) {
			complaints = append(complaints, fmt.Sprintf("plugins of others implement %s, and would not compile with: %s; make another interface", name, line))
		}
	}
	return complaints
}

// promises lists the exported names of sdk/hook, fields and methods among them, with their types and values.
func promises(t *testing.T) []string {
	t.Helper()
	p, err := exportData(token.NewFileSet(), listPackages(t, "./sdk/hook")).Import(module + "/sdk/hook")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, name := range p.Scope().Names() {
		if o := p.Scope().Lookup(name); o.Exported() {
			lines = append(lines, promisesOf(o)...)
		}
	}
	slices.Sort(lines)
	return lines
}

func promisesOf(o types.Object) []string {
	switch o := o.(type) {
	case *types.Const:
		if slices.Contains(counts, o.Name()) {
			return []string{"const " + o.Name() + " " + written(o.Type())}
		}
		return []string{fmt.Sprintf("const %s %s = %s", o.Name(), written(o.Type()), o.Val().ExactString())}
	case *types.TypeName:
		return promisesOfType(o)
	}
	return []string{fmt.Sprintf("%s %s %s", kind(o), o.Name(), written(o.Type()))}
}

func kind(o types.Object) string {
	if _, ok := o.(*types.Func); ok {
		return "func"
	}
	return "var"
}

func promisesOfType(o *types.TypeName) []string {
	lines := []string{"type " + o.Name() + " " + shape(o.Type().Underlying())}
	switch u := o.Type().Underlying().(type) {
	case *types.Struct:
		for f := range u.Fields() {
			if f.Exported() {
				lines = append(lines, fmt.Sprintf("field %s.%s %s", o.Name(), f.Name(), written(f.Type())))
			}
		}
	case *types.Interface:
		for m := range u.Methods() {
			lines = append(lines, fmt.Sprintf("interface %s.%s %s", o.Name(), m.Name(), written(m.Type())))
		}
		return lines
	}
	set := types.NewMethodSet(types.NewPointer(o.Type()))
	for s := range set.Methods() {
		if s.Obj().Exported() && !forGuests(s.Obj()) {
			lines = append(lines, fmt.Sprintf("method %s.%s %s", o.Name(), s.Obj().Name(), written(s.Type())))
		}
	}
	return lines
}

// forGuests reports whether only packages below sdk/hook can call a method.
func forGuests(m types.Object) bool { return strings.Contains(written(m.Type()), "access.Key") }

// shape is a type without its fields and methods, which have lines of their own.
func shape(t types.Type) string {
	switch t.(type) {
	case *types.Struct:
		return "struct"
	case *types.Interface:
		return "interface"
	}
	return written(t)
}

// written is a type as plugins write it, without names of parameters.
func written(t types.Type) string {
	plain := func(p *types.Package) string {
		if p.Path() == module+"/sdk/hook" {
			return ""
		}
		return p.Name()
	}
	return types.TypeString(nameless(t), plain)
}

// nameless returns a function's type without names of parameters, and any other type as it is.
func nameless(t types.Type) types.Type {
	s, ok := t.(*types.Signature)
	if !ok {
		return t
	}
	return types.NewSignatureType(nil, nil, nil, types.NewTuple(namelessAll(s.Params())...), types.NewTuple(namelessAll(s.Results())...), s.Variadic())
}

func namelessAll(vars *types.Tuple) (out []*types.Var) {
	for v := range vars.Variables() {
		out = append(out, types.NewVar(token.NoPos, v.Pkg(), "", nameless(v.Type())))
	}
	return out
}

func TestBrokenPromises(t *testing.T) {
	listed := []string{
		"const Drop Action = 1", "field Verdict.Nack bool", "func LimitOf func(int64) Limit",
		"interface Plugin.Attach func(Queue) Hooks", "interface Queue.Name func() string", "type Plugin interface",
	}
	for _, tc := range []struct {
		name   string
		change func(lines []string) []string
		want   string // part of the complaint; empty: kept
	}{
		{name: "nothing", change: func(l []string) []string { return l }},
		{name: "a new field", change: func(l []string) []string { return append(l, "field Verdict.New bool") }},
		{name: "a new interface", change: func(l []string) []string { return append(l, "interface Other.Do func()") }},
		{name: "a method for the broker", change: func(l []string) []string { return append(l, "interface Queue.Age func() int") }},
		{name: "a method for plugins", change: func(l []string) []string { return append(l, "interface Plugin.Detach func()") }, want: "would not compile with: interface Plugin.Detach func()"},
		{name: "a value", change: func(l []string) []string { return append(l[1:], "const Drop Action = 2") }, want: "const Drop Action = 1"},
		{name: "a field that is gone", change: func(l []string) []string { return slices.Delete(l, 1, 2) }, want: "field Verdict.Nack bool"},
	} {
		got := strings.Join(broken(listed, tc.change(slices.Clone(listed))), "\n")
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}
