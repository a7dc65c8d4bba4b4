package config

import "testing"

// By default a small disk is not kept free of messages. 50 MB of 64 MB used to be reserved, so that publishers waited when 14 MB were used.
// Explicit values apply unchanged.
func TestReserve(t *testing.T) {
	for _, tt := range []struct {
		text         string
		memory, disk uint64
		want         int64
	}{
		{text: "auto", disk: 64 << 20, want: 64 << 20 / 20},
		{text: "auto", disk: 999_999_999, want: 49_999_999},
		{text: "auto", disk: 1_000_000_000, want: 50_000_000},
		{text: "auto", disk: 1 << 40, want: 50_000_000},
		{text: "auto", want: 50_000_000}, // a disk of unknown size
		{text: "50MB", disk: 64 << 20, want: 50_000_000},
		{text: "1.5x", memory: 1000, disk: 64 << 20, want: 1500},
		{text: "0", disk: 64 << 20, want: 0},
	} {
		r, err := parseReserve(tt.text)
		if err != nil {
			t.Fatalf("%s: %v", tt.text, err)
		}
		if got := r.Of(tt.memory, tt.disk); got != tt.want {
			t.Errorf("%s of a disk of %d: got %d, want %d", tt.text, tt.disk, got, tt.want)
		}
		if again, err := parseReserve(r.String()); err != nil || again != r {
			t.Errorf("%s is printed as %s", tt.text, r)
		}
	}
}
