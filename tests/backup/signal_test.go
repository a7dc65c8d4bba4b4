package backup

import (
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
	"github.com/curfewmq/curfew/tests/process"
)

// dataDirectory makes a data directory with more than pipes hold.
func dataDirectory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	e, err := seg.New(vfs.Dir(dir), seg.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := e.Open(t.Context(), 0, func(wlog.Index, []byte) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	for i := range 64 {
		if _, err := l.Append(t.Context(), fmt.Appendf(nil, "%d %x", i, make([]byte, 32<<10)), wlog.Bringing); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A backup into a pipe that nobody reads cannot look whether it is interrupted. The second signal ends it, whatever it does.
func TestABackupThatNobodyReadsCanBeInterrupted(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(process.Binary(t), "backup", "--data", dataDirectory(t), "-")
	cmd.Dir = filepath.Dir(cmd.Path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 512)); err != nil {
		t.Error(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = cmd.Process.Wait() // a signal ended it
	}()
	for range 200 { // of ten seconds
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-ended:
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Error("it goes on after many signals")
	_ = cmd.Process.Kill()
	<-ended
}
