package bench

import (
	"bytes"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
)

// The flags accept every command line in the README, and the README mentions every flag.
func TestREADME(t *testing.T) {
	page, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(page), `"$(pgrep -x curfew)"`, "42")
	for _, line := range regexp.MustCompile(`(?m)^curfew-bench[^#\n]*`).FindAllString(text, -1) {
		var stderr bytes.Buffer
		e := env{stderr: &stderr}
		sc, args, ok := e.choose(strings.Fields(line)[1:])
		if !ok {
			t.Errorf("%s: %s", line, &stderr)
			continue
		}
		f := sc.flags()
		if _, err := f.parse(args); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	for _, sc := range scenarios() {
		sc.flags().VisitAll(func(g *flag.Flag) {
			if !strings.Contains(text, "`--"+g.Name) {
				t.Errorf("--%s of curfew-bench %s is not explained", g.Name, sc.name)
			}
		})
	}
}
