package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes, written "16MiB", "128KB" or as a plain number.
// KiB, MiB, GiB and TiB are powers of 1024, KB, MB, GB and TB of 1000.
type Size int64

const (
	mb Size = 1e6

	kiB Size = 1 << 10
	miB Size = 1 << 20
	giB Size = 1 << 30
	tiB Size = 1 << 40
)

// units lists longer names before the shorter ones that they end in.
var units = []struct {
	name string
	size Size
}{
	{"TiB", tiB},
	{"GiB", giB},
	{"MiB", miB},
	{"KiB", kiB},
	{"TB", 1e12},
	{"GB", 1e9},
	{"MB", 1e6},
	{"KB", 1e3},
	{"B", 1},
}

var errNotSize = errors.New("is not a byte size such as 64MiB, 128KB or 4096")

// parseSize reads a size. The case of units does not matter. "1.5GiB" is accepted, a fraction of a byte is not.
func parseSize(s string) (Size, error) {
	number, unit := splitUnit(s)
	n, err := strconv.ParseInt(number, 10, 64)
	if err == nil && n >= 0 && n <= math.MaxInt64/int64(unit) {
		return Size(n) * unit, nil
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || strings.ContainsAny(number, "-+xXpPeEnN_") {
		return 0, errNotSize
	}
	f *= float64(unit)
	if f >= math.MaxInt64 {
		return 0, errOutOfRange
	}
	if f != math.Trunc(f) {
		return 0, errNotSize
	}
	return Size(f), nil
}

// splitUnit splits s into number and unit; without a unit it is in bytes.
func splitUnit(s string) (number string, unit Size) {
	for _, u := range units {
		at := len(s) - len(u.name)
		if at > 0 && strings.EqualFold(s[at:], u.name) {
			return strings.TrimSpace(s[:at]), u.size
		}
	}
	return s, 1
}

// String returns the shortest form with a unit, or the plain number, that [parseSize] reads back.
func (s Size) String() string {
	shortest := ""
	for _, u := range units {
		if u.size == 1 || s == 0 || s%u.size != 0 {
			continue
		}
		if form := strconv.FormatInt(int64(s/u.size), 10) + u.name; shortest == "" || len(form) < len(shortest) {
			shortest = form
		}
	}
	return cmp.Or(shortest, strconv.FormatInt(int64(s), 10))
}

// Watermark is an amount of memory: a share of the machine's memory, or a size. One of the two fields is set.
type Watermark struct {
	Fraction float64 // above 0, at most 1
	Bytes    Size
}

const minWatermark = 16 * miB

// Of returns the watermark in bytes on a machine with total bytes of memory.
func (w Watermark) Of(total uint64) uint64 {
	if w.Bytes > 0 {
		return uint64(w.Bytes)
	}
	return uint64(w.Fraction * float64(total))
}

// parseWatermark reads "0.6", "60%" or a size.
func parseWatermark(s string) (Watermark, error) {
	number, isPercent := strings.CutSuffix(s, "%")
	f, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if isPercent {
		f /= 100
	}
	if err == nil && f > 0 && f <= 1 {
		return Watermark{Fraction: f}, nil
	}
	if isPercent {
		return Watermark{}, errOutOfRange
	}
	b, err := parseSize(s)
	if err != nil {
		return Watermark{}, errors.New("is neither a share nor a byte size")
	}
	if b < minWatermark {
		return Watermark{}, errOutOfRange
	}
	return Watermark{Bytes: b}, nil
}

func (w Watermark) String() string {
	if w.Bytes > 0 {
		return w.Bytes.String()
	}
	return strconv.FormatFloat(w.Fraction, 'g', -1, 64)
}

var watermarkAccepted = fmt.Sprintf("above 0 and up to 1 (a share of the machine's memory, also as 60%%), or a size from %s", minWatermark)

// Reserve is an amount of disk space: a multiple of the machine's memory, a size, or a
// value chosen to suit the disk. The zero value is none.
type Reserve struct {
	Auto  bool    // autoReserve, or one autoShare-th of the disk if that is less
	Times float64 // above 0, at most maxTimes
	Bytes Size
}

const (
	maxTimes    = 100
	autoReserve = 50 * mb // RabbitMQ's default
	autoShare   = 20
)

// Of returns the reserve in bytes for these sizes of memory and disk; 0 = unknown.
func (r Reserve) Of(memory, disk uint64) int64 {
	switch {
	case r.Auto && disk > 0:
		return int64(min(uint64(autoReserve), disk/autoShare))
	case r.Auto:
		return int64(autoReserve)
	case r.Times > 0:
		return int64(min(r.Times*float64(memory), math.MaxInt64/2))
	}
	return int64(r.Bytes)
}

// parseReserve reads "auto", "0", a multiple of the memory such as "1.5x", or a size.
func parseReserve(s string) (Reserve, error) {
	if s == leftOpen {
		return Reserve{Auto: true}, nil
	}
	if number, isTimes := strings.CutSuffix(s, "x"); isTimes {
		f, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		switch {
		case err != nil:
			return Reserve{}, errors.New("is not a number of times the machine's memory")
		case !(f > 0 && f <= maxTimes):
			return Reserve{}, errOutOfRange
		}
		return Reserve{Times: f}, nil
	}
	b, err := parseSize(s)
	if err != nil {
		return Reserve{}, errors.New("is neither auto nor a byte size nor a number of times the machine's memory")
	}
	return Reserve{Bytes: b}, nil
}

func (r Reserve) String() string {
	if r.Auto {
		return leftOpen
	}
	if r.Times > 0 {
		return strconv.FormatFloat(r.Times, 'g', -1, 64) + "x"
	}
	return r.Bytes.String()
}

var reserveAccepted = fmt.Sprintf(
	"auto (%s, or a twentieth of the disk where that is less), a size, 0 = none, or times the machine's memory, above 0x and up to %dx, as in 1.5x",
	autoReserve, maxTimes)

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
