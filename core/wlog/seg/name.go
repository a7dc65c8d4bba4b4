package seg

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// The files of a data directory:
//
//	LOCK                  locked by the process that uses the directory, and names it
//	00003-0000002a.seg    shard 3 (decimal), segment 42 (hexadecimal)
//	00003-00000029.spare  a former segment that will be reused for a new one
//	00003-0000002b.new    a segment in the making
//	00003-0000002a.first  an empty file: the log begins with segment 42, or with an older one that was about
//	                      to be removed. It is renamed before segments are removed

// fileKind is the last part of a name.
type fileKind string

const (
	segmentFile fileKind = "seg"
	spareFile   fileKind = "spare"
	newFile     fileKind = "new"
	firstFile   fileKind = "first"
)

func fileName(shard, number uint32, kind fileKind) string {
	return fmt.Sprintf("%05d-%08x.%s", shard, number, kind)
}

// named is a file of a shard, with the parts of its name.
type named struct {
	vfs.Stat
	shard, number uint32
	kind          fileKind
}

// parseName is the inverse of fileName.
func parseName(name string) (f named, ok bool) {
	stem, kind, _ := strings.Cut(name, ".")
	shard, number, _ := strings.Cut(stem, "-")
	s, err := strconv.ParseUint(shard, 10, 32)
	if err != nil {
		return named{}, false
	}
	n, err := strconv.ParseUint(number, 16, 32)
	if err != nil {
		return named{}, false
	}
	f = named{shard: uint32(s), number: uint32(n), kind: fileKind(kind)}
	known := f.kind == segmentFile || f.kind == spareFile || f.kind == newFile || f.kind == firstFile
	return f, known && name == fileName(f.shard, f.number, f.kind)
}

// files returns the directory's files that belong to shards, sorted by shard and number.
func files(fsys vfs.FS) ([]named, error) {
	stats, err := fsys.List()
	if err != nil {
		return nil, err
	}
	var found []named
	for _, s := range stats {
		if f, ok := parseName(s.Name); ok {
			f.Stat = s
			found = append(found, f)
		}
	}
	slices.SortFunc(found, func(a, b named) int {
		return cmp.Or(cmp.Compare(a.shard, b.shard), cmp.Compare(a.number, b.number))
	})
	return found, nil
}

// shards returns the shards that have segments or a first file, in increasing order.
func shards(all []named) []uint32 {
	var found []uint32
	for _, f := range all {
		if f.kind == segmentFile || f.kind == firstFile {
			found = append(found, f.shard)
		}
	}
	return slices.Compact(found)
}

// ofShard returns a shard's files of one kind.
func ofShard(all []named, shard uint32, kind fileKind) []named {
	var found []named
	for _, f := range all {
		if f.shard == shard && f.kind == kind {
			found = append(found, f)
		}
	}
	return found
}

// recordedFirst returns the number of a log's first segment, as a file's name records it; 0 = no file does. Older segments may still be
// there.
func recordedFirst(all []named, shard uint32) (number uint32) {
	for _, f := range ofShard(all, shard, firstFile) {
		number = f.number // files are in order, so the last one counts
	}
	return number
}

// LogFile returns the shard to which a file of a [Snapshot] belongs, by its name, and the file's maximum size in bytes; ok is false for
// other files.
func LogFile(name string) (shard uint32, most int64, ok bool) {
	f, ok := parseName(name)
	switch {
	case ok && f.kind == segmentFile:
		return f.shard, maxFile, true
	case ok && f.kind == firstFile:
		return f.shard, 0, true
	}
	return 0, 0, false
}
