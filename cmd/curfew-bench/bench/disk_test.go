package bench

import (
	"os"
	"testing"
	"testing/synctest"
)

func TestTheDiskIsMeasuredBetweenMessages(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBroker()
		got := runScenario(t, b, "--messages 20 --confirm 1 --prefetch 5 --fdatasync "+dir)
		for key, want := range map[string]float64{"published": 20, "fdatasync_max_ms": 0} {
			if got[key] != want {
				t.Errorf("%s: got %v, want %v", key, got[key], want)
			}
		}
	})
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (error %v)", left, err)
	}
}

func TestTheDiskHasToBeThere(t *testing.T) {
	if d, err := openDisk(t.TempDir()+"/missing", newClock()); err == nil {
		t.Errorf("made %s", d.file.Name())
	}
}
