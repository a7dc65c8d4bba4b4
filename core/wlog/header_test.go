package wlog

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"testing"
)

var sample = Header{Kind: Data, Synced: true, Shard: 3, Epoch: 7, Time: 1_700_000_000_000_000_000, Prev: 0x100000040}

const (
	sampleAt   = Index(0x100000078)
	sampleSalt = 0x0123456789abcdef
)

func TestHeaderRoundTrip(t *testing.T) {
	body := []byte("body")
	h := sample
	b := h.Append([]byte("before"), sampleAt, sampleSalt, body)
	if len(b) != len("before")+HeaderSize {
		t.Fatalf("header has %d bytes, want %d", len(b)-len("before"), HeaderSize)
	}
	got, err := ParseHeader(b[len("before"):], sampleAt, sampleSalt)
	if err != nil {
		t.Fatal(err)
	}
	want := sample
	want.Size, want.sum = len(body), got.sum
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if !got.Holds(body) {
		t.Error("the header does not hold its own body")
	}
	for _, other := range []string{"", "bod", "Body", "body2"} {
		if got.Holds([]byte(other)) {
			t.Errorf("the header holds %q", other)
		}
	}
}

// The bytes of version 1. They must never change.
func TestHeaderBytes(t *testing.T) {
	h := sample
	got := hex.EncodeToString(h.Append(nil, sampleAt, sampleSalt, []byte("body")))
	const want = "776c6f67" + "01000100" + "03000000" + "04000000" + "0700000000000000" +
		"00002a36fe9c9717" + "4000000001000000"
	if got[:80] != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	place := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, sampleSalt), uint64(sampleAt))
	raw, err := hex.DecodeString(got)
	if err != nil {
		t.Fatal(err)
	}
	if sum := crc32.Checksum(append(place, raw[:44]...), castagnoli); sum != binary.LittleEndian.Uint32(raw[44:]) {
		t.Errorf("checksum of place and header: got %08x, want %08x", binary.LittleEndian.Uint32(raw[44:]), sum)
	}
	if sum := crc32.Checksum([]byte("body"), castagnoli); sum != binary.LittleEndian.Uint32(raw[40:]) {
		t.Errorf("checksum of body: got %08x, want %08x", binary.LittleEndian.Uint32(raw[40:]), sum)
	}
}

func TestEveryBitOfAHeaderCounts(t *testing.T) {
	h := sample
	b := h.Append(nil, sampleAt, sampleSalt, []byte("body"))
	for bit := range len(b) * 8 {
		b[bit/8] ^= 1 << (bit % 8)
		if _, err := ParseHeader(b, sampleAt, sampleSalt); !errors.Is(err, ErrNoEntry) {
			t.Errorf("bit %d of byte %d inverted: got error %v, want %v", bit%8, bit/8, err, ErrNoEntry)
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
}

// A reused file is full of entries, and the body of a message may imitate them.
func TestHeaderIsValidInItsPlaceOnly(t *testing.T) {
	h := sample
	b := h.Append(nil, sampleAt, sampleSalt, nil)
	for _, tc := range []struct {
		name string
		at   Index
		salt uint64
	}{
		{"another offset", sampleAt + 8, sampleSalt},
		{"another file", sampleAt + 1<<32, sampleSalt},
		{"another use of the file", sampleAt, sampleSalt + 1},
		{"salt and place exchanged", sampleSalt, uint64(sampleAt)},
	} {
		if _, err := ParseHeader(b, tc.at, tc.salt); !errors.Is(err, ErrNoEntry) {
			t.Errorf("%s: got error %v, want %v", tc.name, err, ErrNoEntry)
		}
	}
}

// reseal corrects the checksum of a header.
func reseal(b []byte, at Index, salt uint64) {
	binary.LittleEndian.PutUint32(b[44:], headerSum(b, at, salt))
}

func TestHeadersThatCannotBe(t *testing.T) {
	for _, tc := range []struct {
		name  string
		off   int
		value byte
		want  error
	}{
		{"newer version", 4, Version + 1, ErrNewer},
		{"version 0", 4, 0, ErrDamaged},
		{"unknown kind", 5, byte(kinds), ErrDamaged},
		{"unknown flag", 6, 2, ErrDamaged},
		{"reserved byte", 7, 1, ErrDamaged},
		{"size", 15, 0x41, ErrDamaged},
	} {
		h := sample
		b := h.Append(nil, sampleAt, sampleSalt, nil)
		b[tc.off] = tc.value
		reseal(b, sampleAt, sampleSalt)
		if _, err := ParseHeader(b, sampleAt, sampleSalt); !errors.Is(err, tc.want) {
			t.Errorf("%s: got error %v, want %v", tc.name, err, tc.want)
		}
	}
}

func TestShortHeader(t *testing.T) {
	h := sample
	b := h.Append(nil, sampleAt, sampleSalt, nil)
	for n := range len(b) {
		if _, err := ParseHeader(b[:n], sampleAt, sampleSalt); !errors.Is(err, ErrNoEntry) {
			t.Errorf("%d bytes: got error %v, want %v", n, err, ErrNoEntry)
		}
	}
}

func TestHeaderDoesNotAllocate(t *testing.T) {
	h, body := sample, make([]byte, 100)
	b := h.Append(nil, sampleAt, sampleSalt, body)
	allocs := testing.AllocsPerRun(100, func() {
		b = h.Append(b[:0], sampleAt, sampleSalt, body)
		if got, err := ParseHeader(b, sampleAt, sampleSalt); err != nil || !got.Holds(body) {
			t.Fatal("no round trip")
		}
	})
	if allocs != 0 {
		t.Errorf("got %v allocations, want none", allocs)
	}
}

// FuzzParseHeader checks that a header that is accepted is written again with the same bytes.
func FuzzParseHeader(f *testing.F) {
	for _, kind := range []Kind{Data, Takeover, Filler} {
		h := sample
		h.Kind = kind
		f.Add(h.Append(nil, sampleAt, sampleSalt, nil), uint64(sampleAt), uint64(sampleSalt), true)
	}
	f.Add([]byte(Magic), uint64(0), uint64(0), false)
	f.Add(bytes.Repeat([]byte{0xff}, HeaderSize), uint64(1), uint64(2), true)
	f.Fuzz(func(t *testing.T, b []byte, at, salt uint64, sealed bool) {
		if sealed && len(b) >= HeaderSize {
			reseal(b, Index(at), salt) // else hardly anything gets past the checksum
		}
		h, err := ParseHeader(b, Index(at), salt)
		if err != nil {
			return
		}
		size, sum := h.Size, h.sum
		again := h.Append(nil, Index(at), salt, nil)
		binary.LittleEndian.PutUint32(again[12:], uint32(size))
		binary.LittleEndian.PutUint32(again[40:], sum)
		reseal(again, Index(at), salt)
		if !bytes.Equal(again, b[:HeaderSize]) {
			t.Errorf("read   %x\nwrites %x", b[:HeaderSize], again)
		}
	})
}
