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

// edgesOf reads edges: "a-expired>b", "a-?>c" for any reason, "a-expired>" without a queue, and "a~expired>b", which is not certain.
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

// A cycle is as fast as the slowest of its edges with a known rate. Without such an edge its rate is unknown.
func TestRatesOfCycles(t *testing.T) {
	for _, tt := range []struct {
		name  string
		a, b  Edge
		rate  float64
		known bool
	}{
		{"unknown", Edge{}, Edge{}, 0, false},
		{"known", Edge{Known: true, Rate: 5}, Edge{Known: true, Rate: 3}, 3, true},
		{"known in part", Edge{}, Edge{Known: true, Rate: 3}, 3, true},
		{"known of the first", Edge{Known: true, Rate: 3}, Edge{}, 3, true},
		{"known to be still", Edge{Known: true, Rate: 5}, Edge{Known: true}, 0, true},
	} {
		tt.a.From, tt.a.To, tt.b.From, tt.b.To = "a", "b", "b", "a"
		got := cycles([]Edge{tt.a, tt.b}, nil)
		if len(got) != 1 || got[0].Rate != tt.rate || got[0].Known != tt.known {
			t.Errorf("%s: got %+v, want a rate of %v, known: %v", tt.name, got, tt.rate, tt.known)
		}
	}
}

// A chain of as many queues as a broker may have is followed without recursion, and a cycle of all of them is found.
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
