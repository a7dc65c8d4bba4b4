package vfs

// Space is what room a file system has.
type Space struct {
	Path  string // of the directory
	Free  int64  // bytes that files may still take
	Total int64  // bytes of all files together, if there were no others
}

// Spacious is a file system that knows what room it has.
type Spacious interface {
	Space() (Space, error)
}

// SpaceOf says what room a file system has; ok is false if it does not know.
func SpaceOf(fsys FS) (s Space, ok bool) {
	knows, ok := fsys.(Spacious)
	if !ok {
		return Space{}, false
	}
	s, err := knows.Space()
	return s, err == nil
}
