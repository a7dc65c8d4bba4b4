package sdk

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A new file of an SDK must not be left out of Sources.
func TestSourcesAreComplete(t *testing.T) {
	var want []string
	for _, pattern := range []string{"c/*.h", "cpp/*.hpp", "rust/*.rs", "zig/*.zig", "assemblyscript/*.ts", "abi/*.go", "go/policy/*.go"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, names...)
	}
	want = slices.DeleteFunc(want, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	slices.Sort(want)
	var got []string
	err := fs.WalkDir(Sources, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			got = append(got, name)
		}
		return err
	})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}
