package process

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A shell that was killed left the nodes running that the page about clusters starts, on ports that the next run needs.
func TestShellRunsItsTraps(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ended")
	t.Run("page", func(t *testing.T) { NewShell(t, ".", "FILE="+file).Run(`trap 'echo ended >"$FILE"' EXIT`) })
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}
