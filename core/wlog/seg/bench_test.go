package seg

import (
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// The benchmarks write to the tests' temporary folders: set TMPDIR to measure another disk.

// cpu returns the processor time the process has used.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func openBench(b *testing.B, dir vfs.Dir, o Options, fn func(wlog.Index, []byte) error) (*Engine, wlog.Log) {
	b.Helper()
	e, err := New(dir, o)
	if err != nil {
		b.Fatal(err)
	}
	l, err := e.Open(b.Context(), 0, fn)
	if err != nil {
		b.Fatal(err)
	}
	return e, l
}

func ignore(wlog.Index, []byte) error { return nil }

// BenchmarkAppend appends batches of 1 KiB messages. With a window the log is trimmed, so that segments are reused; without it the log
// grows.
func BenchmarkAppend(b *testing.B) {
	for _, durability := range []Durability{Fsync, Flush} {
		for _, messages := range []int{1, 10, 100, 1000} {
			for _, window := range []int64{0, 32 << 20} {
				name := fmt.Sprintf("%s/batch=%d/%s", map[Durability]string{Fsync: "fsync", Flush: "flush"}[durability],
					messages, map[bool]string{true: "growing", false: "trimmed"}[window == 0])
				b.Run(name, func(b *testing.B) { benchmarkAppend(b, Options{Durability: durability}, messages, window) })
			}
		}
	}
}

func benchmarkAppend(b *testing.B, o Options, messages int, window int64) {
	b.Helper()
	ctx := b.Context()
	e, l := openBench(b, vfs.Dir(b.TempDir()), o, ignore)
	defer e.Close()
	entry := slices.Repeat([]byte("0123456789abcdef"), messages*1024/16)
	b.SetBytes(int64(len(entry)))
	var indices []wlog.Index
	b.ResetTimer()
	used := cpu(b)
	for b.Loop() {
		at, err := l.Append(ctx, entry, wlog.Bringing)
		if err != nil {
			b.Fatal(err)
		}
		if window == 0 {
			continue
		}
		if indices = append(indices, at); int64(len(indices)*len(entry)) > window {
			if err := l.Trim(indices[len(indices)/2]); err != nil {
				b.Fatal(err)
			}
			indices = slices.Delete(indices, 0, len(indices)/2)
		}
	}
	used = cpu(b) - used
	b.StopTimer()
	b.ReportMetric(float64(messages)*float64(b.N)/b.Elapsed().Seconds(), "msg/s")
	b.ReportMetric(used.Seconds()*1e6/float64(messages*b.N), "cpu-s/Mmsg")
}

// BenchmarkAppendLatency compares one small append at a time with the machine's own time for a write and an fdatasync, measured in turns.
func BenchmarkAppendLatency(b *testing.B) {
	e, l := openBench(b, vfs.Dir(b.TempDir()), Options{}, ignore)
	defer e.Close()
	ctx, fd := b.Context(), benchFile(b)
	entry := make([]byte, 1024)
	page := make([]byte, 1024)
	var ours, machine []time.Duration
	for i := 0; b.Loop(); i++ {
		begin := time.Now()
		if _, err := l.Append(ctx, entry, wlog.Bringing); err != nil {
			b.Fatal(err)
		}
		between := time.Now()
		if _, err := syscall.Pwrite(fd, page, int64(i)*1072%(64<<20-1024)); err != nil {
			b.Fatal(err)
		}
		if err := syscall.Fdatasync(fd); err != nil {
			b.Fatal(err)
		}
		machine = append(machine, time.Since(between))
		ours = append(ours, between.Sub(begin))
	}
	slices.Sort(ours)
	slices.Sort(machine)
	for _, p := range []int{50, 99} {
		b.ReportMetric(float64(ours[len(ours)*p/100].Microseconds()), fmt.Sprintf("append-p%d-µs", p))
		b.ReportMetric(float64(machine[len(machine)*p/100].Microseconds()), fmt.Sprintf("fdatasync-p%d-µs", p))
	}
}

// benchFile returns a file of 64 MiB that was written once.
func benchFile(b *testing.B) int {
	b.Helper()
	f, err := os.CreateTemp(b.TempDir(), "")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	if _, err := f.Write(make([]byte, 64<<20)); err != nil {
		b.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
	return int(f.Fd())
}

// BenchmarkReplay opens a log of a million 1 KiB messages. The log is in the system's cache, so the result is the time for reading and
// checking.
func BenchmarkReplay(b *testing.B) {
	for _, messages := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("batch=%d", messages), func(b *testing.B) {
			const total = 1_000_000
			dir := vfs.Dir(b.TempDir())
			e, l := openBench(b, dir, Options{Durability: Flush}, ignore)
			entry := make([]byte, messages*1024)
			for range total / messages {
				if _, err := l.Append(b.Context(), entry, wlog.Bringing); err != nil {
					b.Fatal(err)
				}
			}
			if err := e.Close(); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(total * 1024)
			for b.Loop() {
				found := 0
				e, _ := openBench(b, dir, Options{}, func(wlog.Index, []byte) error { found++; return nil })
				if found != total/messages {
					b.Fatalf("found %d entries", found)
				}
				e.Close()
			}
		})
	}
}

// BenchmarkReadAt reads 1 KiB messages back, of which each entry has a hundred.
func BenchmarkReadAt(b *testing.B) {
	e, l := openBench(b, vfs.Dir(b.TempDir()), Options{Durability: Flush}, ignore)
	defer e.Close()
	var indices []wlog.Index
	for range 1000 {
		at, err := l.Append(b.Context(), make([]byte, 100*1024), wlog.Bringing)
		if err != nil {
			b.Fatal(err)
		}
		indices = append(indices, at)
	}
	ctx, p := b.Context(), make([]byte, 1024)
	b.SetBytes(1024)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := l.ReadAt(ctx, indices[i/100%len(indices)], i%100*1024, p); err != nil {
			b.Fatal(err)
		}
	}
}
