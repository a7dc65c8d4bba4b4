package policies

import (
	"fmt"
	"testing"
)

// A name that none of a hundred policies matches: all of them are tried.
func BenchmarkMatch(b *testing.B) {
	for _, bc := range []struct{ name, pattern string }{
		{"prefix", `^tenant-%d\.`},
		{"suffix", `\.kind-%d$`},
		{"contains", `tenant-%d`},
		{"expression", `^tenant-(%d|x)\..*\.retry$`},
		{"unanchored", `tenant-(%d|x)[a-z]+`},
	} {
		b.Run(bc.name, func(b *testing.B) {
			s := hundred(b, bc.pattern)
			o := Subject{Name: "tenant-998.orders.eu-west.created", Type: Classic}
			for b.Loop() {
				if s.Match(o).User != nil {
					b.Fatal("a policy applies")
				}
			}
		})
	}
}

func hundred(b *testing.B, pattern string) *Set {
	b.Helper()
	var s *Set
	for i := range 100 {
		p, err := parse(User, Policy{
			Name: fmt.Sprintf("p%d", i), Pattern: fmt.Sprintf(pattern, 10_000+i), Definition: newDefinition(map[string]any{"message-ttl": int64(1)}),
		})
		if err != nil {
			b.Fatal(err)
		}
		s = s.With(User, p)
	}
	return s
}

func BenchmarkSetting(b *testing.B) {
	user, err := parse(User, Policy{Name: "u", Definition: newDefinition(map[string]any{"message-ttl": int64(9), "dead-letter-exchange": "x"})})
	if err != nil {
		b.Fatal(err)
	}
	a := Applied{User: user, Operator: user}
	var arg any = int64(5)
	for b.Loop() {
		a.Setting("message-ttl", arg, true, Classic)
	}
}
