package vfs

import (
	"errors"
	"io/fs"
)

// Replace replaces a file durably: after a crash the file has its old or its new content. The new content is first written under a
// temporary name, which may remain after an error.
func Replace(dir FS, name, temporary string, content []byte) error {
	if err := write(dir, temporary, content); err != nil {
		return err
	}
	if err := dir.Rename(temporary, name); err != nil {
		return err
	}
	return dir.Sync()
}

// write writes a new file and makes its content durable, but not its name.
func write(dir FS, name string, content []byte) error {
	if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := dir.Open(name, Create)
	if err != nil {
		return err
	}
	if err = f.Allocate(int64(len(content))); err == nil {
		err = f.Writev(0, [][]byte{content})
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
