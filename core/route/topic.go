package route

import (
	"bytes"
	"strings"
	"sync"
)

// trie is the binding keys of a topic exchange, word by word. In a key, * stands
// for one word and # for any number of them, none included; words are between
// dots and may be empty; the empty key has no words
// [AMQP 3.1.3.3, RabbitMQ: tutorials/tutorial-five].
//
// A key is stored in a normal form that matches the same: in a run of wildcards
// the stars come first and all # become one. So no # is followed by a wildcard,
// and a # node has words below it or nothing.
type trie[D comparable] struct {
	root  node[D]
	marks sync.Pool // of map[*node[D]]int, for walk
}

type node[D comparable] struct {
	group      group[D] // the bindings whose key ends here
	star, hash *node[D]
	word       string              // the word that leads to only
	only       *node[D]            // the word below, while there is one
	words      map[string]*node[D] // the words below, when there are several
	nested     bool                // a # below another #
}

func (t *trie[D]) add(b *binding[D]) {
	n, hashes := &t.root, 0
	for _, word := range normalWords(b.key) {
		n = n.grow(word)
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

// grow returns the node below n for a word of a binding key, making it if need be.
func (n *node[D]) grow(word string) *node[D] {
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

// wildcard returns where n keeps the node of a wildcard, nil for other words.
func (n *node[D]) wildcard(word string) **node[D] {
	switch word {
	case "*":
		return &n.star
	case "#":
		return &n.hash
	}
	return nil
}

// prune cuts off the nodes on the way along words that lead to no binding any
// more, and reports whether n itself is one.
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

// child returns the node below n for a word of a routing key.
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
func (t *trie[D]) match(g gather[D], key []byte) gather[D] {
	w := walk[D]{gather: g, pool: &t.marks}
	w.at(&t.root, key, len(key) > 0)
	recycle(&t.marks, w.marks)
	return w.gather
}

// walk matches one routing key. No node is tried twice with the same words left
// to match, so that the cost is bounded by the nodes and the words, however many
// # the keys hold: where a path can lead to a # more than once, marks keeps the
// most bytes that were left there. The gather is in it by value, or it would not
// stay on the stack.
type walk[D comparable] struct {
	gather[D]
	marks map[*node[D]]int
	pool  *sync.Pool
}

// at matches the words in rest, if there are words left, below n.
func (w *walk[D]) at(n *node[D], rest []byte, left bool) {
	if !left {
		w.group(&n.group)
		if n.hash != nil {
			w.group(&n.hash.group)
		}
		return
	}
	word, tail, more := bytes.Cut(rest, dot)
	if c := n.child(word); c != nil {
		w.at(c, tail, more)
	}
	if n.star != nil {
		w.at(n.star, tail, more)
	}
	if n.hash != nil {
		w.skip(n.hash, rest)
	}
}

var dot = []byte{'.'}

// skip lets the # node h stand for none of the words in rest, for one, and so on.
func (w *walk[D]) skip(h *node[D], rest []byte) {
	w.group(&h.group)
	if !h.branches() {
		return
	}
	for done := w.mark(h, len(rest)); len(rest) > done; {
		word, tail, more := bytes.Cut(rest, dot)
		if c := h.child(word); c != nil {
			w.at(c, tail, more)
		}
		if !more {
			return
		}
		rest = tail
	}
}

// mark notes that h is tried with this many bytes left and with all that are
// fewer. It returns from where on that was done before, -1 for not at all.
func (w *walk[D]) mark(h *node[D], left int) int {
	if !h.nested {
		return -1
	}
	if w.marks == nil {
		w.marks, _ = w.pool.Get().(map[*node[D]]int)
		if w.marks == nil {
			w.marks = map[*node[D]]int{}
		}
	}
	done, marked := w.marks[h]
	if !marked {
		done = -1
	}
	w.marks[h] = max(done, left)
	return done
}
