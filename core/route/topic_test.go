package route

import (
	"slices"
	"strings"
	"testing"
)

func TestTopic(t *testing.T) {
	for _, c := range []struct {
		binding  string
		match    []string
		mismatch []string
	}{
		{"", []string{""}, []string{"a", ".", "a."}},
		{"a", []string{"a"}, []string{"", "a.", ".a", "b", "a.a"}},
		{"a.b", []string{"a.b"}, []string{"a", "a.b.", "a.b.c", "ab", "a..b"}},
		{"*", []string{"a", "*"}, []string{"", ".", "a.b"}},
		{"*.*", []string{"a.b", ".", "a.", ".b"}, []string{"a", "", "a.b.c"}},
		{"a.*", []string{"a.b", "a."}, []string{"a", "b.a", "a.b.c"}},
		{"#", []string{"", "a", "a.b", ".", "...", "#"}, nil},
		{"#.#", []string{"", "a", "a.b"}, nil},
		{"#.*", []string{"a", "a.b", "."}, []string{""}},
		{"*.#", []string{"a", "a.b", "."}, []string{""}},
		{"*.#.*", []string{"a.b", ".", "a.b.c"}, []string{"", "a"}},
		{"a.#", []string{"a", "a.b", "a.b.c", "a."}, []string{"", "b", "ab", "b.a"}},
		{"#.a", []string{"a", "b.a", "b.c.a", ".a", "a.a"}, []string{"", "b", "a.b", "a."}},
		{"a.#.b", []string{"a.b", "a.x.b", "a.b.b", "a..b"}, []string{"a", "b", "a.b.c", "ab"}},
		{"a.#.*.b", []string{"a.x.b", "a.x.y.b", "a..b"}, []string{"a.b", "a.b.c"}},
		{"#.a.#.b.#", []string{"a.b", "x.a.y.b.z", "a.a.b.b"}, []string{"b.a", "a", "b", ""}},
		{"#.a.#.a", []string{"a.a", "x.a.a", "a.x.a"}, []string{"a", "x.a", "a.a.x"}},
		{"a.", []string{"a."}, []string{"a", "a.b", "."}},
		{".", []string{"."}, []string{"", "a", "..", ".a"}},
		{"..", []string{".."}, []string{".", "..."}},
		{"a.#.", []string{"a.", "a.b.", "a.."}, []string{"a", "a.b"}},
		{"a*", []string{"a*"}, []string{"ab", "a"}},
		{"**", []string{"**"}, []string{"a", "a.b"}},
		{"#a", []string{"#a"}, []string{"a", "b.a"}},
		{"stock.*.nyse.#", []string{"stock.usd.nyse", "stock.usd.nyse.ibm", "stock..nyse"}, []string{"stock.nyse", "stock.usd.db"}},
		{"\xff.\x00", []string{"\xff.\x00"}, []string{"\xff"}},
	} {
		table := New[string](Topic)
		table.Add(c.binding, nil, "q")
		for _, key := range c.match {
			if len(match(t, table, key, nil)) != 1 {
				t.Errorf("%q does not match %q", c.binding, key)
			}
		}
		for _, key := range c.mismatch {
			if len(match(t, table, key, nil)) != 0 {
				t.Errorf("%q matches %q", c.binding, key)
			}
		}
		table.Remove(c.binding, nil, "q")
		if !table.topic.root.prune(nil) {
			t.Errorf("%q leaves nodes behind", c.binding)
		}
	}
}

// RabbitMQ's own results.
func TestTopicAsRabbitMQ(t *testing.T) {
	keys := []string{"", "a", "a.b", "a.b.c", "a.", ".", "..", ".a", "*", "#", "a.x.y.b", "a..b", "a.a", "x.a.a"}
	for binding, want := range map[string][]string{
		"":        {""},
		"a":       {"a"},
		"*":       {"a", "*", "#"},
		"#":       keys,
		"*.*":     {"a.b", "a.", ".", ".a", "a.a"},
		"a.*":     {"a.b", "a.", "a.a"},
		"a.#":     {"a", "a.b", "a.b.c", "a.", "a.x.y.b", "a..b", "a.a"},
		"#.a":     {"a", ".a", "a.a", "x.a.a"},
		"#.*":     keys[1:],
		"*.#.*":   {"a.b", "a.b.c", "a.", ".", "..", ".a", "a.x.y.b", "a..b", "a.a", "x.a.a"},
		"a.#.b":   {"a.b", "a.x.y.b", "a..b"},
		"a.#.*.b": {"a.x.y.b", "a..b"},
		"#.a.#.a": {"a.a", "x.a.a"},
		".":       {"."},
		"..":      {".."},
		"a.":      {"a."},
		"a.#.":    {"a."},
		"#.#":     keys,
		"*.":      {"a.", "."},
		".*":      {".", ".a"},
	} {
		table := New[string](Topic)
		table.Add(binding, nil, "q")
		var got []string
		for _, key := range keys {
			if len(match(t, table, key, nil)) == 1 {
				got = append(got, key)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q matches %q, want %q", binding, got, want)
		}
	}
}

// topicMatches is RabbitMQ's rule, without optimisation.
func topicMatches(pattern, key []string) bool {
	if len(pattern) == 0 {
		return len(key) == 0
	}
	if pattern[0] == "#" {
		return topicMatches(pattern[1:], key) || len(key) > 0 && topicMatches(pattern, key[1:])
	}
	return len(key) > 0 && (pattern[0] == "*" || pattern[0] == key[0]) && topicMatches(pattern[1:], key[1:])
}

func splitWords(key string) []string {
	if key == "" {
		return nil
	}
	return strings.Split(key, ".")
}

func FuzzTopic(f *testing.F) {
	f.Add("a.b.c", "#.a.#.b.#", "*.b.*", "a.#")
	f.Add("a.a.a.a.a", "#.a.#.a.#.a", "#.#.*.a", "")
	f.Add("..", "*.#.", ".#", "#..")
	f.Fuzz(func(t *testing.T, key, p1, p2, p3 string) {
		patterns := []string{p1, p2, p3}
		for _, s := range append(patterns, key) {
			if strings.Count(s, ".") > 10 { // the plain rule is exponential
				t.Skip()
			}
		}
		table := New[int](Topic)
		var want []int
		for i, p := range patterns {
			table.Add(p, nil, i)
			if topicMatches(splitWords(p), splitWords(key)) {
				want = append(want, i)
			}
		}
		got, _ := table.Match(nil, []byte(key), nil)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("Match(%q) with %q = %v, want %v", key, patterns, got, want)
		}
		for i, p := range patterns {
			table.Remove(p, nil, i)
		}
		if !table.topic.root.prune(nil) {
			t.Errorf("%q leave nodes behind", patterns)
		}
	})
}

// Hostile keys: with 63 # between repeated words, a matcher that tries every distribution of the words would never return.
func TestTopicManyHashes(t *testing.T) {
	table := New[string](Topic)
	pattern := strings.Repeat("#.a.", 63) + "b"
	table.Add(pattern, nil, "q")
	key := strings.Repeat("a.", 127) + "a"
	if got := match(t, table, key, nil); len(got) != 0 {
		t.Errorf("Match = %v, want nothing", got)
	}
	if got := match(t, table, key[:252]+"b", nil); len(got) != 1 {
		t.Errorf("Match = %v, want q", got)
	}
}
