package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// tick is the unit of CPU time in /proc/PID/stat: USER_HZ, 100 per second on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// usage is a sample of a process: cpu is user plus system time of all its threads since it started, in steps of 10 ms; rss and peak
// are in bytes.
type usage struct {
	cpu       time.Duration
	rss, peak int64
}

// process is a process that is sampled through a proc file system.
type process struct {
	root string // "/proc" except in tests
	pid  int
}

func (p process) sample() (u usage, err error) {
	dir := filepath.Join(p.root, strconv.Itoa(p.pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	var status []byte
	if err == nil {
		status, err = os.ReadFile(filepath.Join(dir, "status"))
	}
	if err == nil {
		u.cpu, err = parseStat(stat)
	}
	if err == nil {
		u.rss, err = parseStatus(status, "VmRSS")
	}
	if err == nil {
		u.peak, err = parseStatus(status, "VmHWM")
	}
	if err != nil {
		return usage{}, fmt.Errorf("--pid %d: %w", p.pid, err)
	}
	return u, nil
}

// parseStat reads utime and stime, fields 14 and 15 of proc_pid_stat(5). Field 2 is the command's name in parentheses, which may itself
// contain blanks and parentheses, as in "(a) b)", so fields are counted from the last parenthesis.
func parseStat(b []byte) (time.Duration, error) {
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return 0, fmt.Errorf("stat %q: no command name in parentheses", b)
	}
	fields := bytes.Fields(b[end+1:]) // fields[0] is field 3
	if len(fields) < 13 {
		return 0, fmt.Errorf("stat: %d fields after the command name, want 13 or more", len(fields))
	}
	var sum uint64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseUint(string(f), 10, 63)
		if err != nil {
			return 0, fmt.Errorf("stat: CPU time: %w", err)
		}
		sum += n
	}
	return time.Duration(sum) * tick, nil
}

// parseStatus reads a memory value from proc_pid_status(5), such as "VmRSS:   1234 kB", and returns it in bytes.
func parseStatus(b []byte, key string) (int64, error) {
	for line := range bytes.Lines(b) {
		rest, ok := bytes.CutPrefix(line, []byte(key+":"))
		if !ok {
			continue
		}
		number, ok := bytes.CutSuffix(bytes.TrimSpace(rest), []byte(" kB"))
		if !ok {
			return 0, fmt.Errorf("status: %s: %q is not in kB", key, bytes.TrimSpace(rest))
		}
		kb, err := strconv.ParseInt(string(bytes.TrimSpace(number)), 10, 53)
		if err != nil {
			return 0, fmt.Errorf("status: %s: %w", key, err)
		}
		return kb << 10, nil
	}
	return 0, fmt.Errorf("status: no %s line", key)
}
