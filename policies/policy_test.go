package policies

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	var s *Set
	set := func(kind Kind, name, body string) {
		t.Helper()
		p, err := rabbitMQ.Parse(kind, name, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		s = s.With(kind, p)
	}
	set(User, "all", `{"pattern":".*","definition":{"message-ttl":1}}`)
	set(User, "orders", `{"pattern":"^orders","definition":{"message-ttl":2},"priority":5,"apply-to":"queues"}`)
	set(User, "orders-too", `{"pattern":"^orders","definition":{"message-ttl":3},"priority":5}`)
	set(User, "limit", `{"pattern":"^orders","definition":{"delivery-limit":3,"message-ttl":9},"priority":9}`)
	set(User, "lazy", `{"pattern":"^lazy","definition":{"queue-mode":"lazy"},"priority":9}`)
	set(User, "stream", `{"pattern":"^log","definition":{"max-age":"1D"},"priority":9}`)
	set(User, "only-classic", `{"pattern":"typed","definition":{"expires":1},"priority":3,"apply-to":"classic_queues"}`)
	set(User, "only-quorum", `{"pattern":"typed","definition":{"expires":2},"priority":2,"apply-to":"quorum_queues"}`)
	set(User, "only-streams", `{"pattern":"typed","definition":{"max-length-bytes":2},"priority":2,"apply-to":"streams"}`)
	set(User, "ae", `{"pattern":"^x","definition":{"alternate-exchange":"y","message-ttl":1},"apply-to":"exchanges","priority":2}`)
	set(Operator, "ceiling", `{"pattern":"","definition":{"max-length":100},"apply-to":"queues"}`)

	for _, tc := range []struct {
		name, kind, user, operator string
	}{
		{"other", Classic, "all", "ceiling"},
		{"orders", Classic, "orders", "ceiling"},
		{"orders.eu", Quorum, "limit", "ceiling"},
		{"Orders", Quorum, "all", "ceiling"},
		{"lazy", Classic, "lazy", "ceiling"},
		{"lazy", Quorum, "all", "ceiling"},
		{"log", Stream, "stream", ""},
		{"log", Quorum, "all", "ceiling"},
		{"other", Stream, "", ""},
		{"typed", Classic, "only-classic", "ceiling"},
		{"typed", Quorum, "only-quorum", "ceiling"},
		{"typed", Stream, "only-streams", ""},
		{"x", Exchange, "ae", ""},
		{"x", Classic, "all", "ceiling"},
		{"orders", Exchange, "limit", ""},
		{"typed", Exchange, "all", ""},
		{"other", "delayed", "", ""},
	} {
		got := s.Match(Subject{Name: tc.name, Type: tc.kind})
		if name(got.User) != tc.user || name(got.Operator) != tc.operator {
			t.Errorf("%s %s: got %q and %q, want %q and %q", tc.kind, tc.name, name(got.User), name(got.Operator), tc.user, tc.operator)
		}
	}
}

func name(p *Policy) string {
	if p == nil {
		return ""
	}
	return p.Name
}

func TestSet(t *testing.T) {
	var empty *Set
	if got := empty.Match(Subject{Name: "q", Type: Classic}); got != (Applied{}) {
		t.Errorf("no policy applies, got %v", got)
	}
	if s, existed := empty.Without(User, "p"); s != nil || existed {
		t.Error("a policy was taken out of an empty set")
	}
	p := mustParse(t, rabbitMQ, User, `{"pattern":"","definition":{"expires":1,"message-ttl":2}}`)
	one := empty.With(User, p)
	same := mustParse(t, rabbitMQ, User, `{"priority":0,"definition":{"message-ttl":2,"expires":1},"pattern":""}`)
	if one.With(User, same) != one {
		t.Error("the same policy, set again, makes another set")
	}
	changed := one.With(User, mustParse(t, rabbitMQ, User, `{"pattern":"","definition":{"expires":1},"priority":4}`))
	if got, _ := one.Lookup(User, "p"); got != p {
		t.Error("a change shows in the set before")
	}
	if got, _ := changed.Lookup(User, "p"); len(changed.List(User)) != 1 || got.Priority != 4 {
		t.Errorf("got %v, want the policy in its new form", got)
	}
	both := changed.With(Operator, p)
	none, existed := both.Without(User, "p")
	if _, ok := none.Lookup(User, "p"); ok || !existed || len(none.List(Operator)) != 1 {
		t.Error("a policy of one kind stands for the other")
	}
}

// randomPolicies returns policies of different names in random order.
func randomPolicies(t *testing.T, r *rand.Rand, kind Kind, n int) []*Policy {
	t.Helper()
	words := []string{"a", "b", "^a", "c$", ".*", "^b.c", "[ab]c"}
	definitions := []map[string]any{
		{"message-ttl": int64(1)}, {"max-length": int64(2), "overflow": "reject-publish"}, {"delivery-limit": int64(3)}, {"queue-version": int64(1)},
	}
	types := []string{"all", "queues", "classic_queues", "quorum_queues", "exchanges", "streams"}
	list := make([]*Policy, n)
	for i, at := range r.Perm(n) {
		p, err := parse(kind, Policy{
			Name: fmt.Sprintf("p%d", i), Pattern: words[r.IntN(len(words))], Priority: r.IntN(4) - 2,
			ApplyTo: types[r.IntN(len(types))], Definition: newDefinition(definitions[r.IntN(len(definitions))]),
		})
		if err != nil {
			t.Fatal(err)
		}
		list[at] = p
	}
	return list
}

// The order in which policies are set, changed and cleared makes no difference to what applies.
func TestOrderIsIrrelevant(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		kind := Kind(r.IntN(2))
		list := randomPolicies(t, r, kind, 8)
		var one, other *Set
		for _, p := range list {
			one = one.With(kind, p)
		}
		for _, p := range randomPolicies(t, r, kind, 10) { // p8 and p9 are cleared again, the others changed
			other = other.With(kind, p)
		}
		for _, at := range r.Perm(len(list)) {
			other = other.With(kind, list[at])
		}
		other, _ = other.Without(kind, "p8")
		other, _ = other.Without(kind, "p9")
		if !slices.EqualFunc(one.List(kind), other.List(kind), (*Policy).equal) {
			t.Fatalf("got %v, want %v", names(other.List(kind)), names(one.List(kind)))
		}
		for range 10 {
			o := randomSubject(r)
			if got, want := other.Match(o), one.Match(o); name(got.User) != name(want.User) || name(got.Operator) != name(want.Operator) {
				t.Fatalf("%v: got %v, want %v", o, got, want)
			}
			if got, want := one.Match(o), bestOf(list, kind, o); got != want {
				t.Fatalf("%v: got %v, want %v", o, got, want)
			}
		}
	}
}

func randomSubject(r *rand.Rand) Subject {
	return Subject{
		Name: sentence(r, []string{"a", "b", "c"}, 4),
		Type: []string{Classic, Quorum, Stream, Exchange}[r.IntN(4)],
	}
}

func names(list []*Policy) string {
	var b strings.Builder
	for _, p := range list {
		fmt.Fprintf(&b, "%s:%d ", p.Name, p.Priority)
	}
	return b.String()
}

// bestOf looks at all policies, as RabbitMQ says it does: nothing is compiled, nothing sorted.
func bestOf(list []*Policy, kind Kind, o Subject) Applied {
	var best *Policy
	for _, p := range list {
		if !applicable(p, o) || !p.matcher.re.MatchString(o.Name) {
			continue
		}
		if best == nil || p.Priority > best.Priority || p.Priority == best.Priority && p.Name < best.Name {
			best = p
		}
	}
	if kind == Operator {
		return Applied{Operator: best}
	}
	return Applied{User: best}
}

func applicable(p *Policy, o Subject) bool {
	if o.Type == Exchange {
		return p.ApplyTo == "all" || p.ApplyTo == "exchanges"
	}
	types := map[string][]string{"classic_queues": {Classic}, "quorum_queues": {Quorum}, "streams": {Stream}, "exchanges": {}}
	if of, ok := types[p.ApplyTo]; ok && !slices.Contains(of, o.Type) {
		return false
	}
	return !slices.ContainsFunc(p.Definition, func(e Entry) bool {
		switch e.Key {
		case "message-ttl", "max-length", "overflow":
			return o.Type == Stream
		case "delivery-limit":
			return o.Type != Quorum
		}
		return false
	})
}

func TestKindsAreComponents(t *testing.T) {
	if got := User.String() + " " + Operator.String(); got != "policy operator_policy" {
		t.Errorf("got %s", got)
	}
}
