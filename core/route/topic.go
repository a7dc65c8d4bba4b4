package route

import (
	"bytes"
	"strings"
	"sync"
)

// trie has the binding keys of a topic exchange, word by word. In a key, * matches one word and # any number of words,
// including none. Words are separated by dots and may be empty; the empty key has no words [AMQP 3.1.3.3, RabbitMQ:
// tutorials/tutorial-five].
//
// Keys are stored in a normal form that matches the same routing keys: in a run of
// wildcards the stars come first, and all # become one. For example, a.#.*.#.b becomes
// a.*.#.b. So no # is followed by a wildcard, and a # node has either words below it or
// nothing.
type trie[D comparable] struct {
	root      node[D]
	visitMaps sync.Pool // of map[*node[D]]int, for walks
}

type node[D comparable] struct {
	group      bindingGroup[D] // bindings whose key ends here
	star, hash *node[D]
	word       string              // the word that leads to only
	only       *node[D]            // the node below, while there is a single word
	words      map[string]*node[D] // the nodes below, when there are several words
	nested     bool                // it is a # below another #
}

func (t *trie[D]) add(b *binding[D]) {
	n, hashes := &t.root, 0
	for _, word := range normalWords(b.key) {
		n = n.childOf(word)
		if word == "#" {
			n.nested = hashes > 0
			hashes++
		}
	}
	n.group.add(b)
}

func (t *trie[D]) remove(b *binding[D]) {
	b.group.remove(b)
	t.root.prune(normalWords(b.key))
}

// normalWords splits a binding key into the words of its normal form.
func normalWords(key string) []string {
	if key == "" {
		return nil
	}
	words := make([]string, 0, 1+strings.Count(key, "."))
	hash := false
	for word := range strings.SplitSeq(key, ".") {
		if word == "#" {
			hash = true
			continue
		}
		if hash && word != "*" {
			words = append(words, "#")
			hash = false
		}
		words = append(words, word)
	}
	if hash {
		words = append(words, "#")
	}
	return words
}

// childOf returns the node below n for a word of a binding key, and creates it if it is missing.
func (n *node[D]) childOf(word string) *node[D] {
	if at := n.wildcard(word); at != nil {
		if *at == nil {
			*at = new(node[D])
		}
		return *at
	}
	if n.words == nil && n.only == nil {
		n.word, n.only = word, new(node[D])
		return n.only
	}
	if n.words == nil {
		if n.word == word {
			return n.only
		}
		n.words = map[string]*node[D]{n.word: n.only}
		n.word, n.only = "", nil
	}
	child := n.words[word]
	if child == nil {
		child = new(node[D])
		n.words[word] = child
	}
	return child
}

// wildcard returns the address of the pointer to a wildcard's node; nil for other words.
func (n *node[D]) wildcard(word string) **node[D] {
	switch word {
	case "*":
		return &n.star
	case "#":
		return &n.hash
	}
	return nil
}

// prune removes the nodes along words that no longer lead to a binding, and reports whether n itself leads to none.
func (n *node[D]) prune(words []string) bool {
	if len(words) > 0 {
		n.pruneChild(words[0], words[1:])
	}
	return len(n.group.members) == 0 && n.star == nil && n.hash == nil && !n.branches()
}

func (n *node[D]) pruneChild(word string, rest []string) {
	if at := n.wildcard(word); at != nil {
		if (*at).prune(rest) {
			*at = nil
		}
		return
	}
	if n.words == nil {
		if n.only.prune(rest) {
			n.word, n.only = "", nil
		}
		return
	}
	if n.words[word].prune(rest) {
		delete(n.words, word)
	}
}

// branches reports whether there are words below n.
func (n *node[D]) branches() bool { return n.only != nil || len(n.words) > 0 }

// child returns the node below n for a word of a routing key; nil if there is none.
func (n *node[D]) child(word []byte) *node[D] {
	if n.words != nil {
		return n.words[string(word)]
	}
	if n.only != nil && n.word == string(word) {
		return n.only
	}
	return nil
}

// match returns g with the destinations for key added.
func (t *trie[D]) match(g collector[D], key []byte) collector[D] {
	w := walk[D]{collector: g, pool: &t.visitMaps}
	w.match(&t.root, key, len(key) > 0)
	recycleMap(&t.visitMaps, w.visits)
	return w.collector
}

// walk matches one routing key. It tries no node twice with the same remaining words, so that the cost is bounded by nodes times words,
// however many # the keys have: for nodes that are reached through more than one #, visits has the most bytes that remained so
// far. The collector is embedded by value, because otherwise it would not stay on the stack.
type walk[D comparable] struct {
	collector[D]
	visits map[*node[D]]int
	pool   *sync.Pool
}

// match matches the words in rest below n. left is false if there are no words left.
func (w *walk[D]) match(n *node[D], rest []byte, left bool) {
	if !left {
		w.addGroup(&n.group)
		if n.hash != nil {
			w.addGroup(&n.hash.group)
		}
		return
	}
	word, tail, more := bytes.Cut(rest, dot)
	if c := n.child(word); c != nil {
		w.match(c, tail, more)
	}
	if n.star != nil {
		w.match(n.star, tail, more)
	}
	if n.hash != nil {
		w.matchHash(n.hash, rest)
	}
}

var dot = []byte{'.'}

// matchHash tries the # node h with none of the words in rest, then with one, and so on.
func (w *walk[D]) matchHash(h *node[D], rest []byte) {
	w.addGroup(&h.group)
	if !h.branches() {
		return
	}
	for done := w.visit(h, len(rest)); len(rest) > done; {
		word, tail, more := bytes.Cut(rest, dot)
		if c := h.child(word); c != nil {
			w.match(c, tail, more)
		}
		if !more {
			return
		}
		rest = tail
	}
}

// visit records that h is tried with this many bytes remaining, and with all smaller numbers. It returns the number up to which h was tried
// before; -1 if it was not.
func (w *walk[D]) visit(h *node[D], left int) int {
	if !h.nested {
		return -1
	}
	if w.visits == nil {
		w.visits, _ = w.pool.Get().(map[*node[D]]int)
		if w.visits == nil {
			w.visits = map[*node[D]]int{}
		}
	}
	done, marked := w.visits[h]
	if !marked {
		done = -1
	}
	w.visits[h] = max(done, left)
	return done
}
