package jsonobj

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Reader reads the members of a JSON object that a client has sent, and keeps the first
// error. Callers read all they need and look at [Reader.Err] before they use any of it.
type Reader struct {
	members map[string]any
	err     *error  // shared with the readers of inner objects
	source  *source // of the whole; nil if it is unknown
	path    path    // of this object in it
}

// Read returns a reader of the object in b, which has err if that is not nil. No bytes are an empty object.
func Read(b []byte, err error) *Reader { return ReadWithin(Limits{Values: math.MaxInt}, b, err) }

// ReadWithin is Read within limits.
func ReadWithin(l Limits, b []byte, err error) *Reader {
	if err != nil {
		return &Reader{err: &err} // without members
	}
	if len(bytes.TrimSpace(b)) == 0 {
		return ReaderOf(map[string]any{})
	}
	v, err := parse(b, l)
	o, ok := v.(map[string]any)
	if !ok && err == nil {
		err = unreadable(b, len(b)-len(bytes.TrimLeft(b, " \t\r\n")), "an object is expected")
	}
	return &Reader{members: o, err: &err, source: &source{text: b}}
}

// ReaderOf returns a reader of an object of [Parse]. It belongs to the reader from now on.
func ReaderOf(members map[string]any) *Reader { return &Reader{members: members, err: new(error)} }

// Element returns a reader, with errors of its own, of the object that is an element of a
// list. It knows the position of the object.
func (r *Reader) Element(list string, index int, members map[string]any) *Reader {
	return &Reader{members: members, err: new(error), source: r.source, path: r.path.to(list, index)}
}

// Unplaced returns a reader of the same object whose errors have no positions, because
// finding these takes time.
func (r *Reader) Unplaced() *Reader { return &Reader{members: r.members, err: r.err, path: r.path} }

// Position returns where the object begins, as line and column, or "" if that is unknown.
func (r *Reader) Position() string {
	if r.source == nil {
		return ""
	}
	offset, ok := r.source.find(r.path, false)
	if !ok {
		return ""
	}
	return position(r.source.text, offset)
}

// Here returns the path of the object, and its position if that is known.
func (r *Reader) Here() string { return r.source.where(r.path, false) }

// Where returns the path of a member, and the position of its value if that is known.
func (r *Reader) Where(key string) string { return r.source.where(r.path.to(key), false) }

// wrongValue is wrong for a value that is named, too.
func (r *Reader) wrongValue(what, key, value string) {
	if *r.err == nil {
		r.Fail(Pair(what, fmt.Sprintf("%.100s (%s)", value, r.Where(key))))
	}
}

// wrong keeps the error of a member's value: in RabbitMQ's words, the path of the member, and where it is.
func (r *Reader) wrong(what, key string) {
	if *r.err == nil {
		r.Fail(Pair(what, r.Where(key)))
	}
}

// Err returns the first error.
func (r *Reader) Err() error { return *r.err }

// Fail keeps err unless there was an error before, or it is nil.
func (r *Reader) Fail(err error) {
	if *r.err == nil {
		*r.err = err
	}
}

// Value returns a member as [Parse] returned it; nil if it is absent or null.
func (r *Reader) Value(key string) any { return r.members[key] }

// There reports whether a member is there, even if it is null.
func (r *Reader) There(key string) bool {
	_, ok := r.members[key]
	return ok
}

// Has reports whether a member is there and not null.
func (r *Reader) Has(key string) bool { return r.members[key] != nil }

// Set replaces a member.
func (r *Reader) Set(key string, v any) {
	if r.members != nil { // it is nil after an error
		r.members[key] = v
	}
}

// Inherit gives members that are absent the values that they have in another object.
func (r *Reader) Inherit(from *Reader, keys ...string) {
	for _, key := range keys {
		if !r.There(key) && from.Has(key) {
			r.Set(key, from.members[key])
		}
	}
}

// Empty reports whether the object has no members.
func (r *Reader) Empty() bool { return len(r.members) == 0 }

// Raw returns the whole object as JSON.
func (r *Reader) Raw() json.RawMessage { return Marshal(r.members) }

// Need fails if members are absent, in RabbitMQ's words. A null member is present.
func (r *Reader) Need(keys ...string) {
	var missing []string
	for _, k := range keys {
		if !r.There(k) {
			missing = append(missing, "{key_missing,"+k+"}")
		}
	}
	if missing != nil {
		r.Fail(Errorf("[%s]", strings.Join(missing, ",")))
	}
}

// Only fails if there are members besides these.
func (r *Reader) Only(known ...string) {
	for _, key := range slices.Sorted(maps.Keys(r.members)) {
		if !slices.Contains(known, key) {
			r.Fail(Errorf("unknown member %q; accepted are %s (%s)", key, strings.Join(known, ", "), r.source.where(r.path.to(key), true)))
			return
		}
	}
}

// Text returns a string, "" if the member is absent or null.
func (r *Reader) Text(key string) string {
	s, ok := r.members[key].(string)
	if !ok && r.Has(key) {
		r.wrong("not_string", key)
	}
	return s
}

// Name returns a string that fits where AMQP has short strings.
func (r *Reader) Name(key string) string {
	s := r.Text(key)
	r.Fail(CheckName(key, s))
	return s
}

// maxName is how many bytes a short string of AMQP holds.
const maxName = 255

// CheckName refuses a name that is too long for a short string of AMQP. The error calls the name what.
func CheckName(what, name string) error {
	if len(name) > maxName {
		return Errorf("%s has %d bytes: at most %d are allowed", what, len(name), maxName)
	}
	return nil
}

// Flag returns a boolean, which clients may also write as a string; false if it is absent.
func (r *Reader) Flag(key string) bool {
	switch v := r.members[key].(type) {
	case nil:
		return false
	case bool:
		return v
	case string:
		if v != "true" && v != "false" {
			r.wrongValue("not_boolean", key, v)
		}
		return v == "true"
	}
	r.wrong("not_boolean", key)
	return false
}

// Int returns an integer, which clients may also write as a string. It must be there.
func (r *Reader) Int(key string) int64 {
	switch v := r.members[key].(type) {
	case json.Number:
		n, ok := integer(v)
		if !ok {
			r.wrongValue("not_integer", key, v.String())
		}
		return n
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			r.wrongValue("not_integer", key, v)
		}
		return n
	}
	r.wrong("not_integer", key)
	return 0
}

// integer returns the value of a number without a fraction, in any notation.
func integer(n json.Number) (int64, bool) {
	if i, err := n.Int64(); err == nil {
		return i, true
	}
	f, err := n.Float64()
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}

// Limit returns a limit; absent and negative mean none.
func (r *Reader) Limit(key string) hook.Limit {
	if !r.Has(key) {
		return 0
	}
	return LimitOf(r.Int(key))
}

// LimitOf returns n as a limit; negative means none.
func LimitOf(n int64) hook.Limit {
	if n < 0 {
		return 0
	}
	return hook.LimitOf(n)
}

// Uint returns a number from 0 to most; 0 if it is absent.
func (r *Reader) Uint(key string, most uint64) uint64 {
	if !r.Has(key) {
		return 0
	}
	number, ok := r.members[key].(json.Number)
	if !ok {
		r.wrong("not_int", key)
		return 0
	}
	n, err := strconv.ParseUint(number.String(), 10, 64)
	if err != nil || n > most {
		r.Fail(Errorf("%s is %s: 0 to %d are allowed (%s)", key, number, most, r.Where(key)))
	}
	return n
}

// Object returns a reader of an inner object. Absent, null and an empty list, which some
// languages make of an empty map, are empty.
func (r *Reader) Object(key string) *Reader {
	o, ok := AsObject(r.members[key]).(map[string]any)
	if !ok {
		if r.Has(key) {
			r.wrong("not_object", key)
		}
		o = map[string]any{}
	}
	return &Reader{members: o, err: r.err, source: r.source, path: r.path.to(key)}
}

// AsObject makes an object of a list of pairs, [["max-length",1000]], which is how
// RabbitMQ's own rabbitmqctl exports some. It returns anything else unchanged.
func AsObject(v any) any {
	list, ok := v.([]any)
	if !ok {
		return v
	}
	o := make(map[string]any, len(list))
	for _, it := range list {
		pair, _ := it.([]any)
		if len(pair) != 2 {
			return v
		}
		name, ok := pair[0].(string)
		if !ok {
			return v
		}
		o[name] = pair[1]
	}
	return o
}

// Texts returns a list of strings; absent and null are empty.
func (r *Reader) Texts(key string) (all []string) {
	list, ok := r.members[key].([]any)
	if !ok && r.Has(key) {
		r.wrong("not_list", key)
	}
	for _, v := range list {
		s, ok := v.(string)
		if !ok {
			r.wrong("not_string", key)
		}
		all = append(all, s)
	}
	return all
}

// Tags returns tags, written as a list or as a string with commas between them.
func (r *Reader) Tags(key string) (tags []string) {
	var words []string
	switch v := r.members[key].(type) {
	case string:
		words = strings.Split(v, ",")
	case nil, []any:
		words = r.Texts(key)
	default:
		r.wrong("not_string", key)
	}
	seen := make(map[string]bool, min(len(words), 64))
	for _, w := range words {
		if w = strings.TrimSpace(w); w != "" && !seen[w] {
			seen[w] = true
			tags = append(tags, w)
		}
	}
	return tags
}
