package wasm

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

// compiledFiles are the files of a cache.
func compiledFiles(dir string) (all []string) {
	cacheDir(dir).each(func(path string) { all = append(all, path) })
	return all
}

// A cache that a crash has damaged is treated as empty.
func TestDamagedCache(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"empty": func([]byte) []byte { return nil },
		"short": func(b []byte) []byte { return b[:len(b)/2] },
		"zeros": func(b []byte) []byte { return make([]byte, len(b)) },
		"bit":   func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
	} {
		dir := t.TempDir()
		load(t, open(t, 1, Env{CacheDir: dir}), "x", ttl(1), Options{})
		files := compiledFiles(dir)
		if len(files) != 1 {
			t.Fatalf("%s: got %v", name, files)
		}
		whole, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(files[0], damage(append([]byte(nil), whole...)), 0o600); err != nil {
			t.Fatal(err)
		}
		load(t, open(t, 1, Env{CacheDir: dir}), "x", ttl(1), Options{})
		if got := compiledFiles(dir); len(got) != 1 {
			t.Errorf("%s: got %v afterwards", name, got)
		}
	}
}

// A cache does not grow without limit while a broker runs and tries modules.
func TestCacheOfManyModules(t *testing.T) {
	dir := t.TempDir()
	h := open(t, 1, Env{CacheDir: dir})
	load(t, h, "x", ttl(1), Options{})
	files := compiledFiles(dir)
	if len(files) != 1 {
		t.Fatalf("got %v", files)
	}
	rehearse(t, h, &Candidate{Name: "fresh", Module: ttl(2)})
	if got := compiledFiles(dir); len(got) != 2 {
		t.Errorf("got %v, want another file", got)
	}
	if err := os.Truncate(files[0], maxCache+1); err != nil { // it takes no room
		t.Fatal(err)
	}
	rehearse(t, h, &Candidate{Name: "fresh", Module: ttl(3)})
	if got := compiledFiles(dir); len(got) != 1 {
		t.Errorf("got %v, want that of the last module alone", got)
	}
	if got := enqueue1(h.Attach(queue("x", nil)), now, hook.Message{}); got.Deadline != now.AddMillis(1) {
		t.Errorf("a module whose code is not cached any more: got %+v", got)
	}
}

// A cache that has grown too large is emptied.
func TestLargeCache(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "old")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		size int64
		left int
	}{{maxCache, 1}, {maxCache + 1, 0}} {
		if err := os.Truncate(file, tc.size); err != nil { // it takes no room
			t.Fatal(err)
		}
		cacheDir(dir).trim()
		if got := compiledFiles(dir); len(got) != tc.left {
			t.Errorf("%d bytes: %d files are left, want %d", tc.size, len(got), tc.left)
		}
	}
}
