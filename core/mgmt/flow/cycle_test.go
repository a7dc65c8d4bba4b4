package flow

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/sdk/hook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// edgesOf reads edges: "a-expired>b a-?>c" goes for any reason, "a-expired>" nowhere, and "a~expired>b" is not certain.
func edgesOf(text string) (all []Edge) {
	for s := range strings.FieldsSeq(text) {
		var e Edge
		e.Certain = !strings.Contains(s, "~")
		from, rest, _ := strings.Cut(strings.Replace(s, "~", "-", 1), "-")
		reason, to, _ := strings.Cut(rest, ">")
		e.From, e.To = from, to
		for r := range hook.Reasons {
			if r.String() == reason {
				e.Reason = r
			}
		}
		all = append(all, e)
	}
	return all
}

func TestCycles(t *testing.T) {
	for _, tt := range []struct{ edges, want string }{
		{"", ""},
		{"a-expired>b b-expired>c", ""},
		{"a-expired>a", "[a] slowed"},
		{"a-maxlen>a", "[a]"},
		{"a-expired>b b-expired>a b-rejected>dead", "[a b] slowed"},
		{"b-rejected>a a-expired>b", "[a b] rejected slowed"},
		{"a-maxlen>b b-maxlen>c c-maxlen>a c-maxlen>d d-maxlen>e e~maxlen>d", "[a b c]; [d e] uncertain"},
		{"a-maxlen>b b-maxlen>a b-maxlen>c c-maxlen>b", "[a b c]"},
		{"a-maxlen> b-maxlen>", ""},
		{"a-?>b b-?>a", "[a b]"},
	} {
		var got []string
		for _, c := range cycles(edgesOf(tt.edges), nil) {
			facts := []string{fmt.Sprint(c.Queues)}
			for _, fact := range []struct {
				name string
				is   bool
			}{{"rejected", c.Rejected}, {"slowed", c.Slowed}, {"uncertain", !c.Certain}} {
				if fact.is {
					facts = append(facts, fact.name)
				}
			}
			got = append(got, strings.Join(facts, " "))
		}
		if s := strings.Join(got, "; "); s != tt.want {
			t.Errorf("%q: got %q, want %q", tt.edges, s, tt.want)
		}
	}
}

// A chain of as many queues as a broker has is followed without recursion, and a cycle of all of them is one.
func TestALongCycle(t *testing.T) {
	const n = 50_000
	edges := make([]Edge, n)
	for i := range edges {
		edges[i] = Edge{From: strconv.Itoa(i), To: strconv.Itoa((i + 1) % n), Certain: true}
	}
	if got := cycles(edges, nil); len(got) != 1 || len(got[0].Queues) != n {
		t.Errorf("got %d cycles", len(got))
	}
	if got := cycles(edges[:n-1], nil); len(got) != 0 {
		t.Errorf("a chain: got %d cycles", len(got))
	}
}
