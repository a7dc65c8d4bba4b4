package bench

import (
	"strings"
	"testing"
	"time"
)

const statLine = "42 (a (b) c) S 1 42 42 0 -1 4194304 100 0 0 0 1234 66 7 8 20 0 9 0 100 2300000000 30000 18446744073709551615\n"

const statusText = "Name:\ta (b) c\nVmPeak:\t 2238816 kB\nVmHWM:\t  188608 kB\nVmRSS:\t  128900 kB\nThreads:\t9\n"

func TestParseStat(t *testing.T) {
	cases := []struct {
		name, in string
		want     time.Duration
		err      string
	}{
		{name: "blanks and parentheses in the name", in: statLine, want: 13 * time.Second},
		{name: "no name", in: "42 S 1", err: "no command name"},
		{name: "cut short", in: "42 (x) S 1 2 3", err: "4 fields"},
		{name: "not a number", in: strings.Replace(statLine, "1234", "12x4", 1), err: "CPU time"},
		{name: "negative", in: strings.Replace(statLine, "1234", "-1", 1), err: "CPU time"},
		{name: "empty", in: "", err: "no command name"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseStat([]byte(c.in))
			check(t, err, c.err)
			if got != c.want {
				t.Errorf("parseStat = %v, want %v", got, c.want)
			}
		})
	}
}

func TestParseStatus(t *testing.T) {
	cases := []struct {
		name, in, key string
		want          int64
		err           string
	}{
		{name: "resident", in: statusText, key: "VmRSS", want: 128900 << 10},
		{name: "peak", in: statusText, key: "VmHWM", want: 188608 << 10},
		{name: "absent", in: statusText, key: "VmSwap", err: "no VmSwap line"},
		{name: "other unit", in: "VmRSS: 12 MB\n", key: "VmRSS", err: "not in kB"},
		{name: "not a number", in: "VmRSS: many kB\n", key: "VmRSS", err: "VmRSS"},
		{name: "kernel thread", in: "Name: kthreadd\n", key: "VmRSS", err: "no VmRSS line"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseStatus([]byte(c.in), c.key)
			check(t, err, c.err)
			if got != c.want {
				t.Errorf("parseStatus = %d, want %d", got, c.want)
			}
		})
	}
}

func TestSampleNamesTheProcessThatIsGone(t *testing.T) {
	_, err := process{root: t.TempDir(), pid: 4711}.sample()
	check(t, err, "--pid 4711: ")
}

// check fails the test unless err contains want; an empty want means no error.
func check(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Fatalf("error %q, want none", err)
	case want != "" && err == nil:
		t.Fatalf("no error, want one with %q", want)
	case want != "" && !strings.Contains(err.Error(), want):
		t.Fatalf("error %q, want it to contain %q", err, want)
	}
}
