package vfs

// Space is the space of a file system.
type Space struct {
	Path  string // of the directory
	Free  int64  // bytes that files may still take
	Total int64  // bytes, used and free
}

// Spacious is a file system that reports its space.
type Spacious interface {
	Space() (Space, error)
}

// SpaceOf returns the space of a file system; ok is false if the file system does not report it.
func SpaceOf(fsys FS) (s Space, ok bool) {
	knows, ok := fsys.(Spacious)
	if !ok {
		return Space{}, false
	}
	s, err := knows.Space()
	return s, err == nil
}
