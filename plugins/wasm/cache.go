package wasm

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// cacheDir is a folder with compiled code; "" is none. Whatever is wrong with it is
// no reason not to compile.
type cacheDir string

// maxCache is how much code there may be when a broker starts, in bytes. Nothing
// tells which of it is still of use.
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
	d.each(func(path string) { _ = os.Remove(path) }) // one that stays is found to be damaged again
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

// damaged reports whether it was the cache that a module could not be compiled for:
// a loss of power may leave files without their end.
func (d cacheDir) damaged(err error) bool {
	return d != "" && err != nil && strings.HasPrefix(err.Error(), "compilationcache: ")
}
