package seg

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
)

const fuzzSalt = 0x5a17

// FuzzSegment puts any bytes into the only segment of a shard. The shard is opened, or refused because of them. If it is opened it works:
// the entries found are found again, with those appended since.
func FuzzSegment(f *testing.F) {
	s := &segment{number: 1, size: minSegment, salt: fuzzSalt}
	valid := append(s.header(0), make([]byte, minSegment-headerSize)...)
	for _, sealed := range []bool{false, true} {
		f.Add(valid[headerSize:], sealed)
		f.Add([]byte(wlog.Magic), sealed)
		f.Add(seedEntries(), sealed)
		f.Add(seedEntries()[:200], sealed)
	}
	f.Fuzz(func(t *testing.T, b []byte, sealed bool) {
		file := slices.Clone(valid)
		copy(file[headerSize:], b)
		if sealed {
			seal(file)
		}
		fuzzSegment(t, file)
	})
}

func fuzzSegment(t *testing.T, file []byte) {
	t.Helper()
	fsys := crashfs.New(1)
	replace(t, fsys, fileName(0, 1, segmentFile), file)
	_, verified := Verify(t.Context(), fsys)
	s, err := tryOpen(t, fsys, Options{SegmentSize: minSegment, inline: true})
	if err != nil {
		if !errors.Is(err, wlog.ErrDamaged) && !errors.Is(err, wlog.ErrNewer) {
			t.Errorf("refused with %v", err)
		}
		return
	}
	if verified != nil {
		t.Errorf("Verify fails with %v where Open does not", verified)
	}
	found := s.found
	s.append(t, "one more")
	s.close(t)
	s = openShard(t, fsys, Options{SegmentSize: minSegment, inline: true})
	if want := append(found, "one more"); !slices.Equal(s.found, want) {
		t.Errorf("found %d entries, then %d", len(want)-1, len(s.found))
	}
	s.close(t)
}

// seedEntries returns some entries as they are in a segment.
func seedEntries() []byte {
	g := &segment{number: 1, salt: fuzzSalt}
	var b []byte
	var c wlog.Chain
	add := func(kind wlog.Kind, epoch uint64, body string) {
		at := g.index(int64(headerSize + len(b)))
		h := c.Next(kind, 0, 5)
		h.Epoch, h.Synced = epoch, true
		b = h.Append(b, at, fuzzSalt, []byte(body))
		b = append(b, body...)
		b = append(b, make([]byte, -len(b)&(wlog.Align-1))...)
		c.Appended(at, &h)
	}
	add(wlog.Takeover, 1, "")
	add(wlog.Data, 1, "some entry")
	add(wlog.Data, 1, strings.Repeat("z", 1000))
	add(wlog.Takeover, 2, "")
	add(wlog.Data, 2, "")
	return b
}

// seal corrects the checksums of everything that looks like an entry, and of the entries behind it.
func seal(file []byte) {
	g := &segment{number: 1}
	for off := int64(headerSize); off+wlog.HeaderSize <= int64(len(file)); {
		b := file[off:]
		if !bytes.HasPrefix(b, []byte(wlog.Magic)) {
			return
		}
		size := int64(binary.LittleEndian.Uint32(b[12:]))
		if end := wlog.HeaderSize + size; end <= int64(len(b)) {
			sum := crc32.Checksum(b[wlog.HeaderSize:end], castagnoli)
			binary.LittleEndian.PutUint32(b[40:], sum)
		}
		sealHeader(b, g.index(off), fuzzSalt)
		off += roundUp(wlog.HeaderSize+size, wlog.Align)
	}
}

func TestSeeds(t *testing.T) {
	s := &segment{number: 1, size: minSegment, salt: fuzzSalt}
	file := append(s.header(0), make([]byte, minSegment-headerSize)...)
	copy(file[headerSize:], seedEntries())
	sealed := slices.Clone(file)
	seal(sealed)
	if !bytes.Equal(file, sealed) {
		t.Error("sealing changes what is sealed")
	}
	fsys := crashfs.New(1)
	replace(t, fsys, fileName(0, 1, segmentFile), file)
	reports, err := Verify(t.Context(), fsys)
	must(t, err)
	if r := reports[0]; r.Entries != 3 || len(r.Damage) > 0 {
		t.Errorf("got %+v, want three entries", r)
	}
}
