package backup

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// openLogs opens two logs in a directory, and returns the engine and the log of messages.
func openLogs(t *testing.T, dir string) (*seg.Engine, wlog.Log) {
	t.Helper()
	e, err := seg.New(vfs.Dir(dir), seg.Options{SegmentSize: 64 << 10})
	must(t, err)
	var last wlog.Log
	for shard := range uint32(2) {
		last, err = e.Open(t.Context(), shard, func(wlog.Index, []byte) error { return nil })
		must(t, err)
	}
	return e, last
}

// fill appends entries; n distinguishes them from others.
func fill(t *testing.T, l wlog.Log, n int) {
	t.Helper()
	for i := range n {
		_, err := l.Append(t.Context(), fmt.Appendf(nil, "entry %d %x", i, make([]byte, 1000)), wlog.Bringing)
		must(t, err)
	}
}

// entriesOf returns the entries of the log of messages in a directory.
func entriesOf(t *testing.T, dir string) (found []string) {
	t.Helper()
	e, err := seg.New(vfs.Dir(dir), seg.Options{SegmentSize: 64 << 10})
	must(t, err)
	_, err = e.Open(t.Context(), 1, func(_ wlog.Index, b []byte) error {
		found = append(found, string(b))
		return nil
	})
	must(t, err)
	must(t, e.Close())
	return found
}

// policyFile puts a file with a policy into a data directory.
func policyFile(t *testing.T, dir, name, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Join(dir, PolicyFolder), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, PolicyFolder, name), []byte(content), 0o600))
}

// source makes a data directory with some segments and two policies, and returns its backup.
func source(t *testing.T) (dir string, archive []byte) {
	t.Helper()
	dir = t.TempDir()
	e, l := openLogs(t, dir)
	fill(t, l, 100)
	must(t, e.Close())
	policyFile(t, dir, "a.policy", "policy a")
	policyFile(t, dir, "b-1.policy", "policy b")
	policyFile(t, dir, "c.policy.new", "unfinished")
	c, err := Offline(t.Context(), Manifest{Version: "1.2.3", Node: "curfew@test", Time: time.Unix(1e9, 0).UTC()}, dir)
	must(t, err)
	var b bytes.Buffer
	must(t, c.Write(t.Context(), &b, func(int64) error { return nil }))
	must(t, c.Close())
	return dir, b.Bytes()
}

// entry is a file of an archive that a test makes.
type entry struct {
	header tar.Header
	body   string
}

// archiveOf returns an archive of the given files, valid or not.
func archiveOf(tb testing.TB, entries ...entry) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := e.header
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		h.Size, h.Mode = int64(len(e.body)), 0o600
		must(tb, w.WriteHeader(&h))
		_, err := w.Write([]byte(e.body))
		must(tb, err)
	}
	must(tb, w.Close())
	return b.Bytes()
}

// manifestOf returns the file with a manifest.
func manifestOf(tb testing.TB, m *Manifest) entry {
	tb.Helper()
	b, err := json.Marshal(m)
	must(tb, err)
	return named(manifestName, string(b))
}

func named(name, body string) entry { return entry{tar.Header{Name: name}, body} }

// summed adds the file of digests.
func summed(entries ...entry) []entry {
	var sums strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256([]byte(e.body)), e.header.Name)
	}
	return append(entries, named(sumsName, sums.String()))
}

// smallest is a manifest whose only file is the log of definitions.
func smallest() *Manifest {
	return &Manifest{Format: 1, Version: "1", Shards: 1, Files: []File{{Name: "00000-00000001.seg", Bytes: 3, Size: 4096}}}
}
