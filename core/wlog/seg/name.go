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
//	LOCK                  locked by the process that uses the directory, which is named in it
//	00003-0000002a.seg    shard 3 (decimal), segment 42 (hexadecimal)
//	00003-00000029.spare  what was a segment and is kept to be made one again
//	00003-0000002b.new    a segment in the making
//	00003-0000002a.first  says that the log begins with segment 42, or an older one
//	                      that was about to go: an empty file; its name is changed
//	                      before segments go

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

// named is a file of a shard.
type named struct {
	vfs.Stat
	shard, number uint32
	kind          fileKind
}

// parseName takes a name apart that fileName has made.
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

// files returns the directory's files that belong to shards, by shard and then
// by number.
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

// shards returns the shards that have segments, or should have some, in order.
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

// beginning returns the number of the segment that a shard's log begins with, or
// had begun with before older ones were about to go; 0 = nobody has written it down.
func beginning(all []named, shard uint32) (number uint32) {
	for _, f := range ofShard(all, shard, firstFile) {
		number = f.number // they are in order
	}
	return number
}
