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
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A restore whose input, from a terminal or a hanging program, brings nothing can be interrupted without killing it.
func TestARestoreOfAPipeThatBringsNothingCanBeInterrupted(t *testing.T) {
	for name, sent := range map[string]string{"nothing": "", "a beginning": strings.Repeat("\x00", 100)} {
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
