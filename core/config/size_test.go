package config

import "testing"

func TestSize(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Size
		back string // "" = text
	}{
		{"0", 0, ""},
		{"1", 1, ""},
		{"4096", 4096, "4KiB"},
		{"4097", 4097, ""},
		{"16MiB", 16 << 20, ""},
		{"16 mib", 16 << 20, "16MiB"},
		{"128KB", 128000, ""},
		{"1.5GiB", 3 << 29, "1536MiB"},
		{"2TB", 2e12, ""},
		{"7B", 7, "7"},
		{"3TiB", 3 << 40, ""},
		{"9223372036854775807", 1<<63 - 1, ""},
	} {
		got, err := parseSize(tt.text)
		if err != nil || got != tt.want {
			t.Errorf("parseSize(%q) = %d, %v, want %d", tt.text, got, err, tt.want)
			continue
		}
		if tt.back == "" {
			tt.back = tt.text
		}
		if got.String() != tt.back {
			t.Errorf("parseSize(%q).String() = %q, want %q", tt.text, got, tt.back)
		}
	}
	for _, s := range []string{"", "B", "MiB", "-1", "-1MiB", "1e3", "0x10", "1_000", "NaN", "Inf", "inf", "1Mi", "1M", "1.0000001KiB", "1 2", "9223372036854775808", "8388608TiB"} {
		if got, err := parseSize(s); err == nil {
			t.Errorf("parseSize(%q) = %d, want an error", s, got)
		}
	}
}

func TestWatermark(t *testing.T) {
	for _, tt := range []struct {
		text  string
		total uint64
		want  uint64
	}{
		{"0.5", 1000, 500},
		{"40%", 1000, 400},
		{"1", 1000, 1000},
		{"100%", 1000, 1000},
		{"1.0", 10, 10},
		{"32MiB", 1000, 32 << 20},
		{"33554432", 1000, 32 << 20},
	} {
		w, err := parseWatermark(tt.text)
		if err != nil || w.Of(tt.total) != tt.want {
			t.Errorf("%q of %d = %d, %v, want %d", tt.text, tt.total, w.Of(tt.total), err, tt.want)
		}
	}
	for _, s := range []string{"", "0", "0%", "-0.5", "NaN", "1.5", "2", "101%", "15MiB", "half"} {
		if w, err := parseWatermark(s); err == nil {
			t.Errorf("parseWatermark(%q) = %v, want an error", s, w)
		}
	}
}

func TestNearest(t *testing.T) {
	keys := []string{"serve", "config", "version", "bench", "limits.frame-max", "limits.channels"}
	for _, tt := range []struct{ word, want string }{
		{"sevre", "serve"},
		{"srve", "serve"},
		{"SERVE", "serve"},
		{"serv", "serve"},
		{"conf", "config"},
		{"vers", "version"},
		{"frame-max", "limits.frame-max"},
		{"limits.framemax", "limits.frame-max"},
		{"", ""},
		{"xyz", ""},
		{"quite-another-thing", ""},
	} {
		if got := Nearest(tt.word, keys); got != tt.want {
			t.Errorf("Nearest(%q) = %q, want %q", tt.word, got, tt.want)
		}
	}
}
