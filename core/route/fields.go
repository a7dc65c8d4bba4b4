package route

import (
	"bytes"
	"slices"
	"sort"
	"sync"

	"github.com/curfewmq/curfew/core/amqp"
)

// fields are the headers of one message. If a header is repeated, the last one counts.
type fields struct {
	list   []amqp.RawField
	sorted bool // list is sorted by key, because it is long
}

var fieldsPool = sync.Pool{New: func() any { return new(fields) }}

// scan splits a table into its fields, which alias it. The caller must release the result.
func scan(t amqp.RawTable) *fields {
	fs := fieldsPool.Get().(*fields)
	for f := range t.All() {
		fs.list = append(fs.list, f)
	}
	fs.sorted = len(fs.list) > maxLinear
	if fs.sorted {
		slices.SortStableFunc(fs.list, func(a, b amqp.RawField) int { return bytes.Compare(a.Key, b.Key) })
	}
	return fs
}

// release returns fs to the pool, without references to the message and without unusually large memory.
func (fs *fields) release() {
	const large = 1024
	clear(fs.list)
	fs.list = fs.list[:0]
	if cap(fs.list) <= large {
		fieldsPool.Put(fs)
	}
}

// find returns the index of a header; -1 if it is missing.
func (fs *fields) find(name string) int {
	i := len(fs.list) - 1
	if fs.sorted {
		i = sort.Search(len(fs.list), func(i int) bool { return string(fs.list[i].Key) > name }) - 1
		if i >= 0 && string(fs.list[i].Key) != name {
			return -1
		}
		return i
	}
	for i >= 0 && string(fs.list[i].Key) != name {
		i--
	}
	return i
}

// repeated reports whether a later field has the same key as field i.
func (fs *fields) repeated(i int) bool {
	key, later := fs.list[i].Key, fs.list[i+1:]
	if fs.sorted && len(later) > 1 {
		later = later[:1]
	}
	return slices.ContainsFunc(later, func(f amqp.RawField) bool { return bytes.Equal(f.Key, key) })
}

// meetsAll reports whether the headers meet all conditions.
func (fs *fields) meetsAll(conditions []condition) bool {
	for i := range conditions {
		c := &conditions[i]
		at := fs.find(c.name)
		if at < 0 || !c.value.holds(fs.list[at]) {
			return false
		}
	}
	return true
}
