package campaign

import (
	"flag"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCampaignSize(t *testing.T) {
	for _, tt := range []struct {
		name, run, set string
		usual          uint64
		want           uint64 // 0 = it is skipped
	}{
		{name: "among all tests", usual: 3, want: 3},
		{name: "among all tests, where it takes long"},
		{name: "another test is wanted", run: "^TestOther$"},
		{name: "wanted", run: "^TestCampaignSize$", usual: 3, want: 20},
		{name: "with a number", set: "7", usual: 3, want: 7},
		{name: "wanted, with a number", run: "Campaign", set: "7", want: 7},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("SIZE_OF_A_TEST", tt.set)
			withRun(t, tt.run)
			var got uint64
			t.Run("it", func(t *testing.T) { got = Size(t, "SIZE_OF_A_TEST", tt.usual, 20) })
			if got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
	const want = "TestCampaignSize (go test -run Campaign plays them)"
	if got := Skipped(); got != want {
		t.Errorf("skipped: got %q, want %q", got, want)
	}
}

// withRun sets -run until the test has ended.
func withRun(t *testing.T, pattern string) {
	t.Helper()
	before := flag.Lookup("test.run").Value.String()
	set := func(to string) {
		if err := flag.Set("test.run", to); err != nil {
			t.Fatal(err)
		}
	}
	set(pattern)
	t.Cleanup(func() { set(before) })
}

func TestNumber(t *testing.T) {
	t.Setenv("NUMBER_OF_A_TEST", strings.Repeat("1", 3))
	if got := Number(t, "NUMBER_OF_A_TEST", 5); got != 111 {
		t.Errorf("got %d, want 111", got)
	}
	if got := Number(t, "NUMBER_OF_NO_TEST", 5); got != 5 {
		t.Errorf("got %d, want the default, 5", got)
	}
}
