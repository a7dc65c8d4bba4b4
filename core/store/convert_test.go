package store

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/curfewmq/curfew/core/logtest"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

// unpackFormat1 writes the logs of a broker of the format before this one into a directory: three shards of messages, the vhosts "/" and
// "v", and some of everything in them.
func unpackFormat1(t *testing.T, into vfs.FS) {
	t.Helper()
	f, err := os.Open("testdata/format1.tar.gz")
	must(t, err)
	defer f.Close() //nolint:errcheck // it was only read from
	z, err := gzip.NewReader(f)
	must(t, err)
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		b, err := io.ReadAll(r)
		must(t, err)
		file, err := into.Open(h.Name, vfs.Create)
		must(t, err)
		if len(b) > 0 {
			must(t, errors.Join(file.Allocate(int64(len(b))), file.Writev(0, [][]byte{b})))
		}
		must(t, errors.Join(file.Sync(), file.Close()))
	}
	must(t, into.Sync())
}

func smallSegments(o *Options) { o.Shards, o.SegmentSize = 2, 32<<10 }

// wantFormat1 checks that everything is there that unpackFormat1 has written, and takes the messages if take is set.
func (k *kept) wantFormat1(take bool) {
	k.t.Helper()
	const want = `[alice monitoring] [guest administrator] / v [{g {"a":1}}] [{alice v r.*}] /: 5 a b d, c/n, x v: a `
	var b strings.Builder
	for _, a := range k.Users().List() {
		fmt.Fprint(&b, "[", a.Name, " ", strings.Join(a.Tags, " "), "] ")
	}
	fmt.Fprintf(&b, "%s %s ", k.names(), k.GlobalParameters())
	for _, g := range k.Users().Grants() {
		if g.User == "alice" {
			fmt.Fprint(&b, "[{", g.User, " ", g.VHost, " ", g.Read, "}] ")
		}
	}
	fmt.Fprint(&b, "/: ", len(k.v.Bindings())+len(k.v.Queues())-1)
	for _, q := range k.v.Queues() {
		fmt.Fprint(&b, " ", q.Config().Name)
	}
	for _, p := range k.v.Parameters().All() {
		fmt.Fprint(&b, ", ", p.Component, "/", p.Name)
	}
	for _, x := range k.v.Exchanges() {
		if x.Name == "x" {
			fmt.Fprint(&b, ", x")
		}
	}
	fmt.Fprint(&b, " v:")
	for _, q := range k.in("v").v.Queues() {
		fmt.Fprint(&b, " ", q.Config().Name)
	}
	if got := b.String() + " "; got != want {
		k.t.Errorf("got  %s\nwant %s", got, want)
	}
	if m := k.in("v").v.Metadata(); m.Description != "another" || strings.Join(m.Tags, " ") != "a b" {
		k.t.Errorf("metadata %+v", m)
	}
	if !take {
		return
	}
	k.wantMessages("a", "a2", "a3")
	redelivered := false
	must(k.t, k.queue("b").Do(func(q *queue.Queue, now hook.Instant) {
		q.Get(now, &queue.Consumer{Queue: k.queue("b"), NoAck: true}, func(d queue.Delivery, _ int) { redelivered = d.Redelivered })
	}))
	if !redelivered {
		k.t.Error("a message that was delivered before is not marked")
	}
	k.wantMessages("b", "b2", "b3")
	k.wantMessages("d", "d1", "d2", "d3", strings.Repeat("large ", 10_000))
	k.in("v").wantMessages("a", "va1")
}

// The first start on logs of the former format converts them, once, and keeps the old ones, which the former version can open.
func TestConverted(t *testing.T) {
	path := t.TempDir()
	dir := vfs.Dir(path)
	unpackFormat1(t, dir)
	k := open(t, dir, smallSegments)
	k.wantFormat1(false)
	if k.log.Find("the data is in the format of this version") == "" {
		t.Errorf("logged %s", k.log)
	}
	last := k.queue("d").Config().Storage.ID
	if q := k.declare("new"); q.Config().Storage.ID <= last {
		t.Errorf("a new queue has the number %d, an old one %d", q.Config().Storage.ID, last)
	}
	_, err := k.v.DeleteQueue("new", 0, false, false)
	must(t, err)
	k.close()
	k = open(t, dir, smallSegments)
	if k.log.Find("the data is in the format of this version") != "" {
		t.Error("it was converted again")
	}
	k.wantFormat1(true)
	k.close()
	if v, err := seg.Version(dir); v != aloneFormat || err != nil {
		t.Errorf("version %d, error %v", v, err)
	}
	old := vfs.Dir(path + "/" + seg.ReplacedFolder)
	if v, err := seg.Version(old); v != mixedFormat || err != nil {
		t.Errorf("the old logs: version %d, error %v", v, err)
	}
	if reports, err := seg.Verify(t.Context(), old); len(reports) != 4 || err != nil {
		t.Errorf("the old logs: %d, error %v", len(reports), err)
	}
}

// Whenever the power goes during a conversion, the next start finds everything.
func TestPowerGoesWhileConverting(t *testing.T) {
	for n := 0; ; n += fewer {
		disk := crashfs.New(uint64(n))
		unpackFormat1(t, disk)
		done := 0
		disk.Inject(func(crashfs.Op) error {
			if done++; done > n {
				return syscall.EIO
			}
			return nil
		})
		err := startOnce(t, disk)
		k := open(t, disk.LosePower(), smallSegments)
		k.wantFormat1(true)
		k.close()
		if t.Failed() {
			t.Fatalf("after %d operations: %v", n, err)
		}
		if err == nil {
			break
		}
	}
}

// Without space for the new logs the start fails, and the old ones are as they were.
func TestConversionNeedsSpace(t *testing.T) {
	disk := crashfs.New(1)
	unpackFormat1(t, disk)
	disk.SetSpace(100 << 10)
	o := options(t, disk, new(logtest.Log))
	smallSegments(&o)
	_, err := Open(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "make space") {
		t.Errorf("got error %v", err)
	}
	if v, err := seg.Version(disk); v != mixedFormat || err != nil {
		t.Errorf("version %d, error %v", v, err)
	}
	disk.SetSpace(1 << 30)
	k := open(t, disk, smallSegments)
	k.wantFormat1(true)
	k.close()
}

// A broker that was killed in its first start has logs without entries.
func TestConversionOfNothing(t *testing.T) {
	disk := crashfs.New(1)
	e, err := seg.New(disk, seg.Options{SegmentSize: 32 << 10})
	must(t, err)
	for shard := range uint32(2) {
		_, err := e.Open(t.Context(), shard, nil)
		must(t, err)
	}
	must(t, e.Close())
	k := open(t, disk)
	if got := k.names(); got != "/" {
		t.Errorf("vhosts %s", got)
	}
	k.close()
}

// Whichever change of the folder fails once during a conversion, the next start finds everything, be it after a loss of power.
func TestDiskFailsOnceWhileConverting(t *testing.T) {
	for n, failed := 0, true; failed; n += fewer | 1 {
		disk := crashfs.New(uint64(n))
		unpackFormat1(t, disk)
		done := 0
		disk.Inject(func(op crashfs.Op) error {
			switch op.Kind {
			case crashfs.OpCreate, crashfs.OpSync, crashfs.OpSyncDir, crashfs.OpRename, crashfs.OpRemove:
				done++
			default:
				return nil
			}
			if done == n/2+1 {
				return syscall.EIO
			}
			return nil
		})
		err := startOnce(t, disk)
		if n%2 == 1 {
			disk = disk.LosePower()
		}
		k := open(t, disk, smallSegments)
		k.wantFormat1(true)
		k.close()
		if t.Failed() {
			t.Fatalf("operation %d, the power goes %t: %v", n/2, n%2 == 1, err)
		}
		failed = done > n/2
	}
}

// startOnce starts a broker on a disk with faults, and ends it if it could start. The disk has none afterwards.
func startOnce(t *testing.T, disk *crashfs.FS) error {
	t.Helper()
	o := options(t, disk, new(logtest.Log))
	smallSegments(&o)
	s, err := Open(t.Context(), o)
	if err == nil {
		(&kept{Store: s, t: t}).end()
	}
	disk.Inject(nil)
	return err
}
