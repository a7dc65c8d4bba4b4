package wasm

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// cacheDir is a folder with compiled code; "" means none. Without it modules are
// compiled again.
type cacheDir string

// maxCache bounds the code in the folder, in bytes. It is checked when a broker starts and before it compiles another module. It is unknown
// which code in the folder is still used.
const maxCache = 256 << 20

// trim empties a cache that has grown too large.
func (d cacheDir) trim() {
	size := int64(0)
	d.each(func(path string) {
		if info, err := os.Lstat(path); err == nil {
			size += info.Size()
		}
	})
	if size > maxCache {
		d.empty()
	}
}

func (d cacheDir) empty() {
	d.each(func(path string) { _ = os.Remove(path) }) // a file that cannot be removed will be found damaged again
}

func (d cacheDir) each(file func(path string)) {
	if d == "" {
		return
	}
	_ = filepath.WalkDir(string(d), func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			file(path)
		}
		return nil
	})
}

// damaged reports whether the cache caused a compiler error: a loss of power may
// truncate its files.
func (d cacheDir) damaged(err error) bool {
	return d != "" && err != nil && strings.HasPrefix(err.Error(), "compilationcache: ")
}
