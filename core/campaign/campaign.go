// Package campaign decides how often a test plays that looks for faults by chance: nodes
// that are killed, power that fails, simulated games. Such a test is named TestCampaign… .
// go test ./... skips it, or plays it for seconds. With -run and a pattern that contains
// Campaign, go test plays its short form, as .ci/run campaigns does. A variable of the
// environment, which targets of make set, gives another number.
package campaign

import (
	"flag"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// prefix begins the name of each test that calls [Size]. .ci/run finds the tests by it.
const prefix = "TestCampaign"

// skipped lists the tests of this process that were skipped.
var skipped struct {
	mu    sync.Mutex // guards names
	names []string
}

// Size returns how often a test plays: the number in the variable; without one, short if
// -run asks for campaigns, and else usual. If usual applies and is 0, Size skips the test.
func Size(t *testing.T, variable string, usual, short uint64) uint64 {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	if !strings.HasPrefix(name, prefix) {
		t.Fatalf("%s is a campaign: call it %s…, so that .ci/run campaigns plays it", name, prefix)
	}
	if os.Getenv(variable) == "" && !wanted() {
		if usual == 0 {
			skip(t, name)
		}
		return usual
	}
	n := Number(t, variable, short)
	if n == 0 {
		t.Fatalf("%s is 0: it is how often %s plays, 1 or more", variable, name)
	}
	return n
}

// wanted reports whether -run names campaigns.
func wanted() bool {
	run := flag.Lookup("test.run")
	return run != nil && strings.Contains(run.Value.String(), strings.TrimPrefix(prefix, "Test"))
}

func skip(t *testing.T, name string) {
	t.Helper()
	skipped.mu.Lock()
	if !slices.Contains(skipped.names, name) {
		skipped.names = append(skipped.names, name)
	}
	skipped.mu.Unlock()
	t.Skipf("a campaign: go test -run '^%s$' plays it", name)
}

// Skipped says in one line which campaigns of this process were skipped; "" = none were.
func Skipped() string {
	skipped.mu.Lock()
	defer skipped.mu.Unlock()
	if len(skipped.names) == 0 {
		return ""
	}
	slices.Sort(skipped.names)
	return strings.Join(skipped.names, ", ") + " (go test -run Campaign plays them)"
}

// Number returns the number in a variable of the environment; otherwise if the variable is
// not set.
func Number(t *testing.T, variable string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}
