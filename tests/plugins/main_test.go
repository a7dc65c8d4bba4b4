// Package plugins tests plugins of others as their users meet them: in modules of their own, built in by "curfew build" without a
// network, and used by clients.
package plugins

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/tests/process"
	"github.com/curfewmq/curfew/tests/tools"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "4") // the default, which -parallel overrides: these tests wait more than they compute
	goleak.VerifyTestMain(m, process.Cleanup())
}

// program is the broker with the plugins below testdata, which "curfew build" made.
var program struct {
	once sync.Once
	dir  string // below that of the broker alone, with which it is removed
	said string // by the build
	err  error
}

const (
	nightshift = "example.com/nightshift"
	carousel   = "example.com/carousel"
)

// withPlugins builds the program, once, and returns its path. The module cache is the only source of what curfew needs, and a
// proxy of files that of example.com/nightshift at its version. The other plugin is in a folder.
func withPlugins(t *testing.T) string {
	t.Helper()
	tools.Want(t, "programs that curfew build makes") // anew, for a minute and a half on one processor
	plain, err := filepath.Abs(process.Binary(t))     // which also has the go tool download what is missing
	must(t, err)
	program.once.Do(func() { program.err = build(t, plain) })
	if program.err != nil {
		t.Fatal(program.err)
	}
	return filepath.Join(program.dir, "mybroker")
}

func build(t *testing.T, plain string) (err error) {
	t.Helper()
	program.dir = filepath.Join(filepath.Dir(plain), "plugins")
	if err := os.Mkdir(program.dir, 0o700); err != nil {
		return err
	}
	root, err := filepath.Abs(process.Root(t))
	must(t, err)
	look(t)
	folder, err := filepath.Abs(filepath.Join("testdata", "carousel"))
	must(t, err)
	proxy, cache := filepath.Join(program.dir, "proxy"), filepath.Join(program.dir, "cache")
	publish(t, proxy, nightshift, "v1.2.0", filepath.Join("testdata", "nightshift"))
	process.FillModuleCache(t)
	share(t, cache)
	c := exec.Command(plain, "build", "--curfew", root, "--with", nightshift+"@v1.2.0", "--with", carousel+"/ring="+folder, "-o", "mybroker")
	c.Dir = program.dir
	c.Env = append(
		os.Environ(), "GOPROXY=file://"+proxy, "GOMODCACHE="+cache, "GONOSUMDB=example.com", "GOFLAGS=-mod=mod -modcacherw", "GOWORK=off", "GOTOOLCHAIN=local",
	)
	out, err := c.CombinedOutput()
	program.said = string(out)
	if err != nil {
		return errors.New(c.String() + ": " + err.Error() + "\n" + program.said)
	}
	return nil
}

// look reads the folders below testdata, whose files only the go tool reads, so that go test sees when they change.
func look(t *testing.T) {
	t.Helper()
	must(t, filepath.WalkDir("testdata", func(_ string, _ fs.DirEntry, err error) error { return err }))
}

// publish has a proxy of files offer a version of the module in a folder.
func publish(t *testing.T, proxy, module, version, folder string) {
	t.Helper()
	at := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	must(t, os.MkdirAll(at, 0o700))
	file, err := os.Create(filepath.Join(at, version+".zip"))
	must(t, err)
	z := zip.NewWriter(file)
	entries, err := os.ReadDir(folder)
	must(t, err)
	for _, e := range entries {
		w, err := z.Create(module + "@" + version + "/" + e.Name())
		must(t, err)
		_, err = w.Write(read(t, filepath.Join(folder, e.Name())))
		must(t, err)
	}
	must(t, errors.Join(z.Close(), file.Close()))
	for suffix, text := range map[string][]byte{
		".mod": read(t, filepath.Join(folder, "go.mod")), ".info": []byte(`{"Version":"` + version + `"}`),
	} {
		must(t, os.WriteFile(filepath.Join(at, version+suffix), text, 0o600))
	}
	must(t, os.WriteFile(filepath.Join(at, "list"), []byte(version+"\n"), 0o600))
}

// share makes a module cache that has what the user's has, and keeps modules of example.com out of that one.
func share(t *testing.T, cache string) {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMODCACHE").Output()
	must(t, err)
	theirs := strings.TrimSpace(string(out))
	for _, dir := range []string{".", filepath.Join("cache", "download")} {
		must(t, os.MkdirAll(filepath.Join(cache, dir), 0o700))
		entries, err := os.ReadDir(filepath.Join(theirs, dir))
		must(t, err)
		for _, e := range entries {
			if e.Name() != "cache" && e.Name() != "example.com" {
				must(t, os.Symlink(filepath.Join(theirs, dir, e.Name()), filepath.Join(cache, dir, e.Name())))
			}
		}
	}
}

// run calls the program, and wants it to succeed.
func run(t *testing.T, args ...string) string {
	t.Helper()
	c := exec.Command(withPlugins(t), args...)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	must(t, err)
	return b
}

func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
