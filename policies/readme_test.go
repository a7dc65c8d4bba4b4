package policies

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

// The table of keys in the README says what the keys say.
func TestKeysInREADME(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(page)) {
		if row := strings.TrimSpace(line); strings.HasPrefix(row, "| `") && strings.Count(row, "|") == 5 {
			got = append(got, row)
		}
	}
	var want []string
	for _, k := range rabbitMQ.keys {
		want = append(want, row(k))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func row(k *keyRule) string {
	operator := "–"
	if k.Operator {
		operator = merging(k.Merge, "operator policy", "policy")
	}
	argument := merging(k.Argument, "policy", "argument")
	if k.QuorumArgument != nil {
		argument += " (quorum queues: " + merging(*k.QuorumArgument, "policy", "argument") + ")"
	}
	types := "all"
	if k.types() != onAll {
		types = strings.Join(k.QueueTypes, ", ")
	}
	return "| `" + k.name + "` | " + operator + " | " + argument + " | " + types + " |"
}

func merging(m hook.Merge, stronger, weaker string) string {
	return map[hook.Merge]string{
		hook.TakeStronger: stronger, hook.TakeWeaker: weaker, hook.TakeLower: "lower", hook.TakeHigher: "higher", hook.TakeLowerLimit: "lower (negative: no limit)",
	}[m]
}
