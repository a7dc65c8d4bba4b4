package app

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// cannotStart returns the error of a broker that cannot start.
func cannotStart(t *testing.T, args ...string) string {
	t.Helper()
	args = append([]string{"serve", "--amqp", "127.0.0.1:0", "--management", "off"}, args...)
	code, _, stderr := invoke(args...)
	if code != exitFailure {
		t.Errorf("exit status %d", code)
	}
	for line := range strings.Lines(stderr) {
		if strings.Contains(line, "the broker cannot start") {
			return line
		}
	}
	return stderr
}

// A problem with the folder is reported with the configuration key and advice.
func TestDataDirCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	writeFile(t, file, "")
	const other = "name another folder with data.dir or --data"
	for _, path := range []string{file, filepath.Join(file, "below")} {
		got := cannotStart(t, "--data", path)
		if !strings.Contains(got, "data.dir "+path+": ") || !strings.Contains(got, "; it, or a folder above it, is a file: move that away, or "+other) {
			t.Errorf("%s: got %s", path, got)
		}
	}
	data := filepath.Join(dir, "data")
	running := spawn(t, data)
	got := cannotStart(t, "--data", data)
	if !strings.Contains(got, "data.dir "+data+": data directory in use") || !strings.Contains(got, " by process ") || !strings.Contains(got, "; stop that broker, or "+other) {
		t.Errorf("in use: got %s", got)
	}
	running.end(syscall.SIGTERM)
}

// A folder in which a restore was killed is refused, and the error says so.
func TestAnUnfinishedRestoreIsNamed(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	spawn(t, data).end(syscall.SIGTERM)
	segments, err := filepath.Glob(filepath.Join(data, "00000-*.seg"))
	if err != nil || len(segments) == 0 {
		t.Fatalf("there are no segments: %v", err)
	}
	for _, name := range segments {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	if got := cannotStart(t, "--data", data); strings.Contains(got, "restore") {
		t.Errorf("without a restore: got %s", got)
	}
	if err := os.Mkdir(filepath.Join(data, "restore-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := cannotStart(t, "--data", data); !strings.Contains(got, "; a restore into it was not finished: empty the folder and restore again, or name another") {
		t.Errorf("got %s", got)
	}
}

// A broker that was started while a backup was being restored into its folder, and was refused, created the folder for policies there. The restore
// then failed, because it did not know that folder.
func TestARefusedBrokerLeavesTheDataDirAsItIs(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	dir, err := vfs.Make(data)
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := seg.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := cannotStart(t, "--data", data); !strings.Contains(got, "data directory in use") {
		t.Errorf("got %s", got)
	}
	entries, err := os.ReadDir(data)
	if err != nil || len(entries) != 1 || entries[0].Name() != "LOCK" {
		t.Errorf("there are %v, %v", entries, err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
}

// A folder in which the broker may not write is detected before anything is written.
func TestDataDirIsNotOurs(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write anywhere; TestDataDirOfAnother of core/broker has the rest")
	}
	dir := filepath.Join(t.TempDir(), "locked")
	if err := os.Mkdir(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	if got := cannotStart(t, "--data", dir); !strings.Contains(got, "permission denied; the broker runs as user ") {
		t.Errorf("got %s", got)
	}
}
