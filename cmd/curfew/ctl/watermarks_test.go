package ctl

import "testing"

// What rabbitmqctl 3.10 takes and refuses, with its words, and the units, which it does not name.
func TestWatermarkOperands(t *testing.T) {
	const (
		bad, few, many = "Bad argument.", "not enough arguments.", "too many arguments."
		accepted       = " Accepted are whole numbers of bytes, with a unit or without: k, kB, kiB, M, MB, MiB, G, GB or GiB"
	)
	for _, tt := range []struct {
		check    func(*call) error
		operands []string
		want     string
	}{
		{checkMemoryWatermark, []string{"0.5"}, ""},
		{checkMemoryWatermark, []string{"0"}, ""},
		{checkMemoryWatermark, []string{"1"}, ""},
		{checkMemoryWatermark, []string{"1.5"}, "Bad argument: The threshold should be a fraction between 0.0 and 1.0"},
		{checkMemoryWatermark, []string{"-0.1"}, "Bad argument: The threshold should be a fraction between 0.0 and 1.0"},
		{checkMemoryWatermark, []string{"abc"}, bad},
		{checkMemoryWatermark, []string{"60%"}, bad},
		{checkMemoryWatermark, []string{"2GB"}, bad},
		{checkMemoryWatermark, []string{"0.5", "1"}, many},
		{checkMemoryWatermark, []string{"absolute"}, few},
		{checkMemoryWatermark, []string{"absolute", "1GiB"}, ""},
		{checkMemoryWatermark, []string{"absolute", "1073741824"}, ""},
		{checkMemoryWatermark, []string{"absolute", "abc"}, bad + accepted},
		{checkMemoryWatermark, []string{"absolute", "-1"}, bad + accepted}, // there it is a stack trace
		{checkMemoryWatermark, []string{"absolute", "1.5"}, "Bad argument: The threshold should be an integer."},
		{checkMemoryWatermark, []string{"absolute", "10XB"}, "Bad argument: Invalid units." + accepted},
		{checkDiskLimit, []string{"100MB"}, ""},
		{checkDiskLimit, []string{"5kiB"}, ""},
		{checkDiskLimit, []string{"1k"}, ""},
		{checkDiskLimit, []string{"-5"}, ""},
		{checkDiskLimit, []string{"0"}, ""},
		{checkDiskLimit, []string{"abc"}, bad + accepted},
		{checkDiskLimit, []string{"10XB"}, bad + accepted},
		{checkDiskLimit, []string{"1mb"}, bad + accepted},
		{checkDiskLimit, []string{"1TB"}, bad + accepted},
		{checkDiskLimit, []string{"1KIB"}, bad + accepted},
		{checkDiskLimit, []string{"1Gi"}, bad + accepted},
		{checkDiskLimit, []string{"1.5"}, bad + accepted},
		{checkDiskLimit, []string{"12MB", "13"}, many},
		{checkDiskLimit, []string{"mem_relative"}, few},
		{checkDiskLimit, []string{"mem_relative", "0.5"}, ""},
		{checkDiskLimit, []string{"mem_relative", "1"}, ""},
		{checkDiskLimit, []string{"mem_relative", "abc"}, bad},
		{checkDiskLimit, []string{"mem_relative", "-1"}, bad},
		{checkDiskLimit, []string{"mem_relative", "2GB"}, bad},
	} {
		got := ""
		if err := tt.check(&call{commandLine: &commandLine{operands: tt.operands}}); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.operands, got, tt.want)
		}
	}
	for text, want := range map[string]int64{"7": 7, "1k": 1024, "1kB": 1000, "2MiB": 2 << 20, "50MB": 50_000_000, "1G": 1 << 30, "-5": -5} {
		if got, wrong := parseQuantity(text); got != want || wrong != "" {
			t.Errorf("%s: got %d, %q, want %d", text, got, wrong, want)
		}
	}
}
