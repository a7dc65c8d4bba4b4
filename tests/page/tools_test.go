package page

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/tests/process"
)

// packages names the folder whose node_modules the scenarios use. "make page" and .ci/run install Node.js, Chromium and those packages,
// and set it: from then on a tool that is missing fails the test. Without it nothing here runs.
var packages = os.Getenv("PAGE_TOOLS")

// tool returns the path of the first of these programs that is installed.
func tool(t *testing.T, names ...string) string {
	t.Helper()
	if packages == "" {
		t.Skip("PAGE_TOOLS names no folder with playwright-core, axe-core and typescript: make page")
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatalf("not installed: %s", strings.Join(names, ", "))
	return ""
}

// scenario runs testdata/node/NAME.mjs with a browser and a broker. A line "do WHAT" of its output asks for WHAT of does, and goes on
// when that is done; all others are printed. The test fails if the scenario does.
func scenario(t *testing.T, name string, b *process.Process, does map[string]func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tool(t, "node"), name+".mjs")
	cmd.Dir = filepath.Join("testdata", "node")
	cmd.Env = append(os.Environ(), "CHROMIUM="+tool(t, "chromium", "chromium-browser", "google-chrome"), "PAGE=http://"+b.Management)
	var faults bytes.Buffer
	cmd.Stderr = &faults
	answers, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	follow(t, out, answers, does)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s.mjs: %v\n%s", name, err, faults.String())
	}
}

func follow(t *testing.T, out io.Reader, answers io.WriteCloser, does map[string]func()) {
	t.Helper()
	defer answers.Close()
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		what, asked := strings.CutPrefix(lines.Text(), "do ")
		if !asked {
			t.Log(lines.Text())
			continue
		}
		do := does[what]
		if do == nil {
			t.Errorf("the scenario asks for %q, which the test does not do", what)
			return
		}
		do()
		if _, err := fmt.Fprintln(answers, "done"); err != nil {
			t.Error(err)
			return
		}
	}
}

// The page is plain JavaScript with types in comments, which the compiler of TypeScript checks.
func TestTypes(t *testing.T) {
	compiler := tool(t, filepath.Join(packages, "node_modules", ".bin", "tsc"))
	args := []string{"--noEmit", "--checkJs", "--allowJs", "--strict", "--target", "esnext", "--module", "esnext", "--lib", "esnext,dom,dom.iterable"}
	err := filepath.WalkDir(filepath.Join(process.Root(t), "core", "mgmt", "page", "files"), func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".js" {
			args = append(args, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), compiler, args...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
