package policies

import (
	"os"
	"slices"
	"strings"
	"testing"
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
	for _, k := range append(builtin(), expiryStrategy(nil)) {
		want = append(want, row(&k))
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
	if k.quorum != nil {
		argument += "; " + merging(*k.quorum, "policy", "argument") + " for quorum queues"
	}
	types := "all"
	if k.QueueTypes != nil {
		types = strings.Join(k.QueueTypes, ", ")
	}
	return "| `" + k.Name + "` | " + operator + " | " + argument + " | " + types + " |"
}

func merging(m mergeRule, stronger, weaker string) string {
	return map[mergeRule]string{
		takeStronger: stronger, takeWeaker: weaker, takeLower: "lower", takeHigher: "higher", takeLowerLimit: "lower, negative means none",
	}[m]
}
