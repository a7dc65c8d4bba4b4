package backup

import (
	"context"
	"errors"
	"flag"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A restore whose input, from a terminal or a hanging program, brings nothing can be interrupted without killing it.
func TestARestoreOfAPipeThatBringsNothingCanBeInterrupted(t *testing.T) {
	for name, sent := range map[string]string{"nothing": "", "a beginning": "backup.json"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { interruptRestore(t, sent) })
		})
	}
}

func interruptRestore(t *testing.T, sent string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	stdin, write := io.Pipe()
	c := &call{FlagSet: flag.NewFlagSet("", flag.ContinueOnError), operand: "-"}
	restoreCommand.flags(c.FlagSet)
	if err := c.Set("data", dir); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- restoreCommand.run(ctx, &Program{Stdin: stdin, Stdout: io.Discard}, c) }()
	if _, err := io.WriteString(write, sent); err != nil {
		t.Error(err)
	}
	synctest.Wait()
	cancel()
	synctest.Wait()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v", err)
		}
	default:
		t.Error("it goes on")
	}
	_ = write.Close()
	synctest.Wait()
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder stays: %v", err)
	}
}

// A broker may authenticate users only by certificates: the flags are the same as for "curfew ctl".
func TestABackupMayBeAskedForWithACertificate(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "nightly.pem")
	var printed strings.Builder
	p := Program{Stdout: io.Discard, Stderr: &printed}
	if status := p.Backup([]string{"--cert", missing, "-"}); status != exitUsage || !strings.Contains(printed.String(), missing) {
		t.Errorf("status %d: %s", status, &printed)
	}
}

// An error says what to do. These used to show the name of a temporary file, or only that a lock is taken.
func TestErrorsSayWhatToDo(t *testing.T) {
	inUse := t.TempDir()
	unlock, err := seg.Lock(vfs.Dir(inUse))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unlock() })
	text := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(text, []byte("notes"), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "nightly")
	for _, tt := range []struct {
		name string
		run  func(p *Program, args []string) int
		args []string
		want string
	}{
		{"the folder is missing", (*Program).Backup, []string{filepath.Join(missing, "a.tar")}, "a.tar: there is no folder " + missing + ": make it first\n"},
		{"the broker runs", (*Program).Backup, []string{"--data", inUse, "-"}, "; a running broker is backed up over its management API, without --data\n"},
		{"another file", (*Program).Restore, []string{"--data", missing, text}, text + ": this is not a backup of Curfew: \"curfew backup\" makes one, which begins with backup.json\n"},
	} {
		var printed strings.Builder
		if status := tt.run(&Program{Stdout: io.Discard, Stderr: &printed}, tt.args); status != exitFailure || !strings.HasSuffix(printed.String(), tt.want) {
			t.Errorf("%s: status %d: %s", tt.name, status, &printed)
		}
	}
}

// The help names what a backup leaves out: it used to say "everything that a restart would find".
func TestTheHelpSaysWhatABackupLeavesOut(t *testing.T) {
	var printed strings.Builder
	p := Program{Stdout: &printed}
	if status := p.Backup([]string{"--help"}); status != 0 || !strings.Contains(printed.String(), "leaves out") {
		t.Errorf("status %d: %s", status, &printed)
	}
}
