package seg

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// A program that writes logs of another version than those in a directory replaces all of them at once:
//
//	next-00003-0000002a.seg     a file of the new logs, in the making
//	00000-ffffffff.seg          the new logs are complete and durable. Files of the old ones go to the folder "replaced"
//	00000-fffffffe.seg          the same file, renamed: no file of the old logs is left. Those of the new logs get their final names
//	replaced/00003-0000002a.seg a file of the old logs
//
// 00000-ffffffff.seg and 00000-fffffffe.seg are marks. Without a mark, the old logs are in
// force, and the next engine removes the files of new logs. With a mark, the new logs are
// in force: the next engine completes the replacement, all of whose steps can be repeated.
// Nothing else reads such a directory. A program of an earlier version does not know the
// marks: it takes one for a segment of a version that it refuses. Otherwise it would go on
// with the old logs, or with none, and the next engine would put its entries aside.
const (
	nextPrefix    = "next-"
	replacingName = "00000-ffffffff.seg"
	placingName   = "00000-fffffffe.seg"
)

// ReplacedFolder is the folder in a directory of logs that keeps the logs which were
// replaced.
const ReplacedFolder = "replaced"

// ErrReplacing is the error for a directory in which logs are being replaced.
var ErrReplacing = errors.New("the logs are being converted to a newer format: start the broker, which finishes the conversion")

// next is the directory of new logs.
type next struct{ vfs.FS }

func (n next) Open(name string, mode vfs.Mode) (vfs.File, error) {
	return n.FS.Open(nextPrefix+name, mode)
}
func (n next) Rename(old, name string) error { return n.FS.Rename(nextPrefix+old, nextPrefix+name) }
func (n next) Remove(name string) error      { return n.FS.Remove(nextPrefix + name) }

func (n next) List() (all []vfs.Stat, err error) {
	every, err := n.FS.List()
	for _, f := range every {
		if name, ok := strings.CutPrefix(f.Name, nextPrefix); ok && isOurs(name) {
			all = append(all, vfs.Stat{Name: name, Size: f.Size})
		}
	}
	return all, err
}

// isOurs reports whether an engine has files of that name.
func isOurs(name string) bool {
	_, ok := parseName(name)
	return ok || name == lockName
}

// Space implements [vfs.Spacious].
func (n next) Space() (vfs.Space, error) {
	space, ok := vfs.SpaceOf(n.FS)
	if !ok {
		return space, errors.ErrUnsupported
	}
	return space, nil
}

// Version returns the version of the logs in a directory; 0 = there are none, or they are being replaced.
func Version(fsys vfs.FS) (version byte, err error) {
	all, err := files(fsys)
	if err != nil {
		return 0, err
	}
	if underway, err := replacing(fsys); underway != "" || err != nil {
		return 0, err
	}
	for _, f := range all {
		if f.kind != segmentFile {
			continue
		}
		g, err := open(fsys, f, vfs.Read)
		if err != nil {
			return 0, err
		}
		if g.bad == nil {
			version = max(version, g.version)
			if err := g.file.Close(); err != nil {
				return 0, err
			}
		}
	}
	return version, nil
}

// Version returns the version of the logs; 0 = there are none.
func (r *Reader) Version() (byte, error) { return Version(r.fs) }

// replacing returns the mark of the replacement in progress; "" = there is none.
func replacing(fsys vfs.FS) (name string, err error) {
	all, err := fsys.List()
	for _, f := range all {
		if f.Name == replacingName || f.Name == placingName {
			name = f.Name
		}
	}
	return name, err
}

// checkWhole returns an error if the logs in a directory are being replaced.
func checkWhole(fsys vfs.FS) error {
	if name, err := replacing(fsys); name == "" || err != nil {
		return err
	}
	return ErrReplacing
}

// Next returns an empty directory for logs that will replace the reader's. It fails if
// ReplacedFolder already has logs: they would be lost.
func (r *Reader) Next() (vfs.FS, error) {
	if path, ok := pathOf(r.fs); ok {
		path = filepath.Join(path, ReplacedFolder)
		kept, err := files(vfs.Dir(path))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if len(kept) > 0 {
			return nil, fmt.Errorf("%s has logs that were replaced before: move it away first, or delete it", path)
		}
	}
	return next{r.fs}, removeNext(r.fs)
}

// Replace replaces the reader's logs by those in the directory that Next returned, which
// are complete and closed. The next [New] finishes the replacement. After an error the old
// or the new logs may be in force; the next New finds out which.
func (r *Reader) Replace() error {
	if err := r.fs.Sync(); err != nil {
		return err
	}
	f, err := r.fs.Open(replacingName, vfs.Create)
	if err != nil {
		return err
	}
	mark := segment{version: segmentVersion}
	return errors.Join(f.Writev(0, [][]byte{mark.header(0)}), f.Sync(), f.Close(), r.fs.Sync())
}

// Abandon removes the contents of the directory that Next returned. It must not be called after Replace.
func (r *Reader) Abandon() error { return removeNext(r.fs) }

func removeNext(fsys vfs.FS) error {
	all, err := next{fsys}.List()
	for _, f := range all {
		err = errors.Join(err, next{fsys}.Remove(f.Name))
	}
	return err
}

// finishReplacement completes a replacement. The caller has locked the directory.
func finishReplacement(fsys vfs.FS) error {
	underway, err := replacing(fsys)
	if err == nil && underway == "" {
		return removeNext(fsys)
	}
	if err == nil && underway == replacingName {
		err = setAside(fsys)
	}
	if err == nil {
		err = placeNext(fsys)
	}
	if err != nil {
		return fmt.Errorf("replace the logs by those in a newer format: %w", err)
	}
	return nil
}

// setAside moves the old logs into their folder.
func setAside(fsys vfs.FS) error {
	all, err := files(fsys)
	if err != nil {
		return err
	}
	folder := func() error { return nil }
	if path, ok := pathOf(fsys); ok {
		made, err := vfs.Make(filepath.Join(path, ReplacedFolder))
		if err != nil {
			return err
		}
		folder = made.Sync
	}
	for _, f := range all {
		switch {
		case f.Name == replacingName:
		case f.kind == segmentFile || f.kind == firstFile:
			err = errors.Join(err, fsys.Rename(f.Name, ReplacedFolder+"/"+f.Name))
		default:
			err = errors.Join(err, fsys.Remove(f.Name))
		}
	}
	if err := errors.Join(err, folder(), fsys.Sync()); err != nil {
		return err
	}
	return errors.Join(fsys.Rename(replacingName, placingName), fsys.Sync())
}

// pathOf returns the path of a directory of the operating system.
func pathOf(fsys vfs.FS) (path string, ok bool) {
	switch d := fsys.(type) {
	case vfs.Dir:
		return string(d), true
	case *vfs.Held:
		return string(d.Dir), true
	}
	return "", false
}

// placeNext gives the new logs their final names.
func placeNext(fsys vfs.FS) error {
	all, err := next{fsys}.List()
	if err != nil {
		return err
	}
	for _, f := range all {
		if _, _, ok := LogFile(f.Name); ok {
			err = errors.Join(err, fsys.Rename(nextPrefix+f.Name, f.Name))
		}
	}
	if err := errors.Join(err, fsys.Sync()); err != nil {
		return err
	}
	if err := fsys.Remove(placingName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(removeNext(fsys), fsys.Sync())
}
