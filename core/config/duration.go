package config

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	day  = 24 * time.Hour
	week = 7 * day
)

var (
	durationSyntax = regexp.MustCompile(`^[+-]?((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h|d|w))+$`)
	daysOrWeeks    = regexp.MustCompile(`(\d+\.?\d*|\.\d+)([dw])`)
)

// ParseDuration reads a duration like [time.ParseDuration], and also days and weeks of 24 and 168 hours: "7d", "1w2d12h". Its
// error continues a sentence that begins with the text.
func ParseDuration(s string) (time.Duration, error) {
	if s == "0" {
		return 0, nil
	}
	if !durationSyntax.MatchString(s) {
		if _, err := strconv.ParseFloat(s, 64); err == nil {
			return 0, fmt.Errorf("is a duration without a unit (%ss, %[1]sms, %[1]sm, %[1]sh or %[1]sd?)", s)
		}
		return 0, errors.New("is not a duration such as 10s, 500ms, 1h30m or 7d")
	}
	d, err := time.ParseDuration(daysOrWeeks.ReplaceAllStringFunc(s, inHours))
	if err != nil {
		return 0, errOutOfRange // the longest duration is 292 years
	}
	return d, nil
}

// inHours writes a number of days or weeks as hours.
func inHours(s string) string {
	last := len(s) - 1
	n, err := strconv.ParseFloat(s[:last], 64)
	if err != nil {
		return s // not a valid duration
	}
	hours := day.Hours()
	if s[last] == 'w' {
		hours = week.Hours()
	}
	return strconv.FormatFloat(n*hours, 'f', -1, 64) + "h"
}

// FormatDuration formats a duration so that [ParseDuration] reads it back: whole days as "7d", and others without trailing zeros,
// "30m" instead of "30m0s".
func FormatDuration(d time.Duration) string {
	if d != 0 && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
