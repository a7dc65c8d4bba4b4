// Package logtest collects a log that a test looks at, while several goroutines write to it.
package logtest

import (
	"bytes"
	"strings"
	"sync"
)

// Log collects log lines. The zero value is ready.
type Log struct {
	Written func() // is called after each record; nil = no call

	mu sync.Mutex // guards b
	b  bytes.Buffer
}

// Write adds a record.
func (l *Log) Write(p []byte) (int, error) {
	if l.Written != nil {
		defer l.Written()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns all records.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Count returns the number of lines that contain part.
func (l *Log) Count(part string) int {
	n := 0
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

// Find returns the line of a text handler whose message begins with msg, without its time
// and level; "" if there is none.
func (l *Log) Find(msg string) string {
	for line := range strings.Lines(l.String()) {
		if _, rest, ok := strings.Cut(line, "msg="); ok && strings.HasPrefix(strings.TrimPrefix(rest, `"`), msg) {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}
