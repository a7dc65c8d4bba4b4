package config

import (
	"strings"
	"testing"
	"time"
)

func TestDuration(t *testing.T) {
	for _, tt := range []struct {
		text string
		want time.Duration
		back string
	}{
		{"0", 0, "0s"},
		{"0s", 0, "0s"},
		{"7d", 7 * day, "7d"},
		{"1w", 7 * day, "7d"},
		{"1w2d12h", 9*day + 12*time.Hour, "228h"},
		{"1.5d", 36 * time.Hour, "36h"},
		{".5w", 84 * time.Hour, "84h"},
		{"-2d", -2 * day, "-2d"},
		{"24h", day, "1d"},
		{"1d1ns", day + 1, "24h0m0.000000001s"},
		{"30m0s", 30 * time.Minute, "30m"},
		{"90s", 90 * time.Second, "1m30s"},
		{"500ms", time.Second / 2, "500ms"},
		{"15250w", 15250 * week, "106750d"},
	} {
		got, err := ParseDuration(tt.text)
		if err != nil || got != tt.want {
			t.Errorf("%s: got %v, %v, want %v", tt.text, got, err, tt.want)
		}
		back := FormatDuration(got)
		if again, err := ParseDuration(back); back != tt.back || err != nil || again != got {
			t.Errorf("%s: printed as %s, read back as %v, %v", tt.text, back, again, err)
		}
	}
	for text, want := range map[string]string{
		"":                             "is not a duration such as 10s, 500ms, 1h30m or 7d",
		"7 d":                          "is not a duration",
		"d":                            "is not a duration",
		"7days":                        "is not a duration",
		"1d-1h":                        "is not a duration",
		"7D":                           "is not a duration",
		"7":                            "is a duration without a unit (7s, 7ms, 7m, 7h or 7d?)",
		"15251w":                       "is out of range",
		"99999999h":                    "is out of range",
		strings.Repeat("9", 400) + "d": "is out of range",
	} {
		if got, err := ParseDuration(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, %v, want %s", text, got, err, want)
		}
	}
}

// Durations of the core and of plugins take days.
func TestDaysInConfiguration(t *testing.T) {
	c := load(t, input(t, "management: {session: 1w}\nplugins: {ttl: {max: 30d}}\n", []string{"CURFEW_LIMITS__CONSUMER_TIMEOUT=2d"}))
	if c.Management.Session != week || c.Limits.ConsumerTimeout != 2*day {
		t.Errorf("got %v, %v", c.Management.Session, c.Limits.ConsumerTimeout)
	}
	if got := c.setting("plugins.ttl.max").value.String(); got != "30d" {
		t.Errorf("plugins.ttl.max: got %s", got)
	}
	_, err := Load(input(t, "management: {session: 31d}\n", nil))
	if want := `management.session: "31d" is out of range; accepted: 1m to 30d (file curfew.yaml:1)`; err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}
