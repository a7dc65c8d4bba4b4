package conformance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/plugins/wasm"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
	"github.com/curfewmq/curfew/wasm-examples/internal/build"
)

const sdks = "../../sdk"

func TestREADMEOfC(t *testing.T) {
	decidesByPriority(t, build.C(t, fromREADME(t, "c", "c", "tempo.c")).Bytes)
}

func TestREADMEOfCPP(t *testing.T) {
	decidesByPriority(t, build.CPP(t, fromREADME(t, "cpp", "cpp", "tempo.cpp")).Bytes)
}

func TestREADMEOfZig(t *testing.T) {
	decidesByPriority(t, build.Zig(t, fromREADME(t, "zig", "zig", "tempo.zig")).Bytes)
}

func TestREADMEOfRust(t *testing.T) {
	file := fromREADME(t, "rust", "rust", "tempo.rs")
	beside(t, file, "rust/policy.rs")
	decidesByPriority(t, build.Rust(t, file).Bytes)
}

func TestREADMEOfAssemblyScript(t *testing.T) {
	file := fromREADME(t, "assemblyscript", "ts", "tempo.ts")
	beside(t, file, "assemblyscript/policy.ts")
	decidesByPriority(t, build.AssemblyScript(t, file).Bytes)
}

func TestREADMEOfGo(t *testing.T) {
	dir := filepath.Dir(fromREADME(t, "go", "go", "main.go"))
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "go.mod"), "module example.com/tempo\n\ngo 1.26.0\n\n"+
		"require github.com/curfewmq/curfew v0.0.0\n\nreplace github.com/curfewmq/curfew => "+root+"\n")
	decidesByPriority(t, read(t, build.Go(t, dir)))
}

// fromREADME writes the policy on an SDK's page to a file: its only block in that
// language.
func fromREADME(t *testing.T, sdk, language, name string) string {
	t.Helper()
	page := string(read(t, filepath.Join(sdks, sdk, "README.md")))
	_, after, ok := strings.Cut(page, "\n```"+language+"\n")
	source, _, closed := strings.Cut(after, "\n```\n")
	if !ok || !closed {
		t.Fatalf("the page of %s has no block in %s", sdk, language)
	}
	file := filepath.Join(t.TempDir(), name)
	write(t, file, source+"\n")
	return file
}

// beside copies an SDK's file to where another one is.
func beside(t *testing.T, file, sdk string) {
	t.Helper()
	write(t, filepath.Join(filepath.Dir(file), filepath.Base(sdk)), string(read(t, filepath.Join(sdks, sdk))))
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// decidesByPriority checks that a module is the policy of the pages: urgent
// messages wait ten times as long as others, also if it is asked about them again, and a time below zero is refused.
func decidesByPriority(t *testing.T, module []byte) {
	t.Helper()
	p := open(t)
	if _, err := p.Load("x", module, options(t, map[string]any{"ttl-ms": 2_000})); err != nil {
		t.Fatal(err)
	}
	const now = hook.Instant(1_700_000_000_000_000_000)
	vs := make([]hook.Verdict, 2)
	ms := hooktest.Messages(hook.Message{Enqueued: now, Priority: 4}, hook.Message{Enqueued: now, Priority: 5})
	hs := p.Attach(hooktest.NewQueue(hooktest.Spec{Strategy: "wasm/x"}))
	for name, ask := range map[string]func(){
		"as they enter": func() { hs.OnEnqueue(now, ms, vs) },
		"a second later": func() {
			for i := range ms {
				ms[i].Why = hook.WhyChange
			}
			hs.OnRestamp(now.AddMillis(1_000), ms, vs)
		},
	} {
		clear(vs)
		if ask(); vs[0].Deadline != now.AddMillis(2_000) || vs[1].Deadline != now.AddMillis(20_000) {
			t.Errorf("asked %s: got %+v, want deadlines after 2 and 20 seconds", name, vs)
		}
	}
	_, err := p.Load("y", module, wasm.Options{Config: []byte(`{"ttl-ms": -1}`), Fuel: p.info().Fuel})
	if err == nil || !strings.HasSuffix(err.Error(), "ttl-ms has to be 0 or more") {
		t.Errorf("ttl-ms: -1: got %v, want it refused", err)
	}
}
