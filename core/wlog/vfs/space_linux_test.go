package vfs

import "testing"

func TestSpaceOf(t *testing.T) {
	dir := t.TempDir()
	s, ok := SpaceOf(Dir(dir))
	if !ok || s.Path != dir || s.Free < 0 || s.Free > s.Total || s.Total == 0 {
		t.Errorf("got %+v, %v", s, ok)
	}
	if _, ok := SpaceOf(Dir(dir + "/nowhere")); ok {
		t.Error("a directory that does not exist has space")
	}
	if _, ok := SpaceOf(struct{ FS }{Dir(dir)}); ok {
		t.Error("a file system that does not know has space")
	}
}
