package build

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/cmd/curfew/usage"
)

// Every command line in the README is valid, and every flag is mentioned there.
func TestREADME(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^(?:curfew|go run ./cmd/curfew) build (.*)`).FindAllStringSubmatch(string(page), -1)
	if len(lines) == 0 {
		t.Fatal("there is no command line")
	}
	for _, line := range lines {
		var r request
		if rest, err := usage.Parse(newFlags(&r), strings.Fields(line[1])); err != nil || len(rest) > 0 {
			t.Errorf("%s: %v, %q", line[0], err, rest)
		}
	}
	newFlags(&request{}).VisitAll(func(g *flag.Flag) {
		if !strings.Contains(string(page), "`--"+g.Name) && !strings.Contains(string(page), "`-"+g.Name) {
			t.Errorf("--%s is not explained", g.Name)
		}
	})
}
