package ctl

import "testing"

// rabbitmqctl 3.10 accepts and refuses the same operands, with the same texts; only the list of units is ours.
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
		{memoryWatermark.check, []string{"0.5"}, ""},
		{memoryWatermark.check, []string{"0"}, ""},
		{memoryWatermark.check, []string{"1"}, ""},
		{memoryWatermark.check, []string{"1.5"}, "Bad argument: The threshold should be a fraction between 0.0 and 1.0"},
		{memoryWatermark.check, []string{"-0.1"}, "Bad argument: The threshold should be a fraction between 0.0 and 1.0"},
		{memoryWatermark.check, []string{"abc"}, bad},
		{memoryWatermark.check, []string{"60%"}, bad},
		{memoryWatermark.check, []string{"2GB"}, bad},
		{memoryWatermark.check, []string{"0.5", "1"}, many},
		{memoryWatermark.check, []string{"absolute"}, few},
		{memoryWatermark.check, []string{"absolute", "1GiB"}, ""},
		{memoryWatermark.check, []string{"absolute", "1073741824"}, ""},
		{memoryWatermark.check, []string{"absolute", "abc"}, bad + accepted},
		{memoryWatermark.check, []string{"absolute", "-1"}, bad + accepted}, // there it is a stack trace
		{memoryWatermark.check, []string{"absolute", "1.5"}, "Bad argument: The threshold should be an integer."},
		{memoryWatermark.check, []string{"absolute", "10XB"}, "Bad argument: Invalid units." + accepted},
		{diskLimit.check, []string{"100MB"}, ""},
		{diskLimit.check, []string{"5kiB"}, ""},
		{diskLimit.check, []string{"1k"}, ""},
		{diskLimit.check, []string{"-5"}, ""},
		{diskLimit.check, []string{"0"}, ""},
		{diskLimit.check, []string{"abc"}, bad + accepted},
		{diskLimit.check, []string{"10XB"}, bad + accepted},
		{diskLimit.check, []string{"1mb"}, bad + accepted},
		{diskLimit.check, []string{"1TB"}, bad + accepted},
		{diskLimit.check, []string{"1KIB"}, bad + accepted},
		{diskLimit.check, []string{"1Gi"}, bad + accepted},
		{diskLimit.check, []string{"1.5"}, bad + accepted},
		{diskLimit.check, []string{"12MB", "13"}, many},
		{diskLimit.check, []string{"mem_relative"}, few},
		{diskLimit.check, []string{"mem_relative", "0.5"}, ""},
		{diskLimit.check, []string{"mem_relative", "1"}, ""},
		{diskLimit.check, []string{"mem_relative", "abc"}, bad},
		{diskLimit.check, []string{"mem_relative", "-1"}, bad},
		{diskLimit.check, []string{"mem_relative", "2GB"}, bad},
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
