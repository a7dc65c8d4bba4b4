package mgmt

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
)

// The live views of a cluster are made by the node that is asked, each second, of its own state and those of the other nodes. Its readers
// share them as those of a single broker. What orders rows is sent with them, so that a page can be put together.

// partParameter is the parameter by which the readers of views know that a state is merged with others: pages begin at the first row, and the
// state has the member keys. Requests cannot have it.
const partParameter = "\x00part"

// keysMember has what the rows of a state are sorted by, in their order; null for rows that come last.
const keysMember = "keys"

// watched is the scope of live views: they are put together where they are asked for.
var watched = scope{name: "all nodes, merged", answer: (*request).handle, part: func(*request) {}}

// merges reports whether the view is to be put together from the states of all nodes.
func (w *watcher) merges() bool { return w.api.clustered() && !w.forwarded && !w.inOne }

// merged returns a maker of the states of all nodes together, of which own makes this node's.
func (w *watcher) merged(own maker) maker {
	q, _ := url.ParseQuery(w.query) // which readLive has made
	q.Del(partParameter)
	return func() (object, error) {
		o, err := own()
		if err != nil {
			return nil, err
		}
		parts, missing := w.askLive(q)
		g := gathering{request: w.request, parts: append([]part{w.api.ownPart()}, parts...)}
		g.findUnserved()
		states := []object{parsed(o)}
		for i := range parts {
			s, err := jsonobj.ParseObject(parts[i].body)
			if err != nil || parts[i].status != http.StatusOK {
				missing = append(missing, parts[i].node.Name)
				continue
			}
			states = append(states, s)
		}
		o = mergeStates(w.view.name, states, q)
		slices.Sort(missing)
		g.missing = missing
		return g.incomplete(o), nil
	}
}

// parsed returns an object as it is read from JSON.
func parsed(o object) object {
	p, err := jsonobj.ParseObject(o.Append(nil))
	if err != nil { // no object of ours is unreadable
		return o
	}
	return p
}

// askLive asks all other nodes for their states.
func (w *watcher) askLive(q url.Values) (parts []part, missing []string) {
	ctx, cancel := context.WithTimeout(context.Background(), partTime+partLength) // the state is for many readers
	defer cancel()
	r := (&http.Request{Method: http.MethodGet, URL: &url.URL{Path: root + "live", RawQuery: q.Encode()}, Header: http.Header{}}).WithContext(ctx)
	asking := &request{api: w.api, w: &ownPart{header: http.Header{}}, r: r, user: w.user}
	asking.holding = &holding{of: w.api.parts}
	defer asking.holding.end()
	if err := asking.holding.begin(ctx); err != nil {
		return nil, w.otherNames()
	}
	return asking.askOthers(&question{merged: true})
}

// otherNames names the other nodes.
func (w *watcher) otherNames() (all []string) {
	for _, n := range w.api.Peers.Nodes() {
		if !w.api.isSelf(&n) {
			all = append(all, n.Name)
		}
	}
	return all
}

// clusterKey returns what a reader may see of a cluster.
func (w *watcher) clusterKey() string {
	var key strings.Builder
	key.WriteString("\x00for " + w.user.Name)
	for _, name := range w.api.Placements.VHosts() {
		if w.mayEnter(name) {
			key.WriteString("\x00" + name)
		}
	}
	return key.String()
}

// mergeStates puts the states of a view together. The first one is this node's.
func mergeStates(view string, states []object, q url.Values) object {
	page, size, _ := pageOf(q, maxPage) // which readLive has checked
	o := slices.Clone(states[0]).Without(keysMember)
	switch view {
	case "now":
		return mergeNow(o, states[1:])
	case "top":
		o = mergeRows(o, states, page, size, false)
		n := 0
		for _, s := range states {
			n += int(intOf(valueOf(s, "queues")))
		}
		set(o, "queues", n)
		set(o, "page", page)
		set(o, "page_count", max((n+size-1)/size, 1))
		return mergeNow(o, states[1:])
	case "queues":
		for _, other := range states[1:] {
			for _, name := range []string{"filtered_count", "total_count"} {
				set(o, name, addValues(valueOf(o, name), valueOf(other, name)))
			}
		}
		o = mergeRows(o, states, page, size, q.Get("sort_reverse") == "true")
		filtered := intOf(parsedNumber(valueOf(o, "filtered_count")))
		set(o, "page", page)
		set(o, "page_count", (int(filtered)+size-1)/size)
		return o
	case "deadlines":
		for _, other := range states[1:] {
			addDue(o, other)
			set(o, "total", addValues(valueOf(o, "total"), valueOf(other, "total")))
			o = worstLateness(o, other)
		}
		return mergeRows(o, states, page, size, q.Get("sort_reverse") == "true")
	}
	return o
}

// intOf returns a whole number of parsed JSON; 0 for anything else.
func intOf(v any) int64 {
	n, ok := v.(json.Number)
	if !ok {
		return 0
	}
	i, err := n.Int64()
	if err != nil {
		return 0
	}
	return i
}

// parsedNumber returns a sum as it is read from JSON.
func parsedNumber(v any) any {
	if n, ok := v.(int64); ok {
		return json.Number(jsonobj.Append(nil, n))
	}
	return v
}

// mergeNow adds up how the nodes are.
func mergeNow(o object, others []object) object {
	for _, other := range others {
		for _, name := range []string{"totals", "counts", "rates"} {
			if sum := addValues(valueOf(o, name), valueOf(other, name)); sum != nil {
				o = setMember(o, name, sum)
			}
		}
		o = setMember(o, "next", sooner(valueOf(o, "next"), valueOf(other, "next")))
		o = setMember(o, "alarms", unionAlarms(valueOf(o, "alarms"), valueOf(other, "alarms")))
		o = worstLateness(o, other)
	}
	return o
}

// setMember sets a member, which may be new.
func setMember(o object, name string, v any) object {
	if _, there := o.Value(name); there {
		set(o, name, v)
		return o
	}
	return append(o, member{name, v})
}

// sooner returns which of two queues has a message that is due next.
func sooner(a, b any) any {
	x, isObject := a.(object)
	y, areObjects := b.(object)
	switch {
	case !isObject:
		return b
	case areObjects && compareValues(valueOf(y, "at"), valueOf(x, "at")) < 0:
		return b
	}
	return a
}

// unionAlarms returns the alarms of both, each once.
func unionAlarms(a, b any) []object {
	all := []object{}
	for _, o := range joinObjects(maxListeners, a, b) {
		if !slices.ContainsFunc(all, func(x object) bool { return nameOf(x) == nameOf(o) }) {
			all = append(all, o)
		}
	}
	return all
}

// worstLateness sets each lateness to that of the node which is later: quantiles cannot be added.
func worstLateness(o, other object) object {
	for _, name := range []string{"lateness", "overstay"} {
		theirs, ok := valueOf(other, name).(object)
		if !ok {
			continue
		}
		own, ok := valueOf(o, name).(object)
		if ok && compareValues(valueOf(own, "p99"), valueOf(theirs, "p99")) >= 0 {
			continue
		}
		o = setMember(o, name, theirs)
	}
	return o
}

// rowRun is the rows of one state.
type rowRun struct {
	rows  object
	order []any
	keys  []any
	at    int
}

func rowsOf(s object) (r rowRun) {
	r.rows, _ = valueOf(s, "rows").(object)
	r.order, _ = valueOf(s, "order").([]any)
	r.keys, _ = valueOf(s, keysMember).([]any)
	if len(r.keys) != len(r.order) {
		r.order, r.keys = nil, nil
	}
	return r
}

// head returns the name of the next row and what it is sorted by.
func (r *rowRun) head() (name string, key any, ok bool) {
	if r.at >= len(r.order) {
		return "", nil, false
	}
	name, _ = r.order[r.at].(string)
	return name, r.keys[r.at], true
}

// mergeRows sets the rows to those of one page of all states.
func mergeRows(o object, states []object, page, size int, reverse bool) object {
	runs := make([]rowRun, len(states))
	for i, s := range states {
		runs[i] = rowsOf(s)
	}
	rows, order := object{}, []string{}
	for n := 0; n < page*size; n++ {
		first := -1
		for i := range runs {
			if _, _, ok := runs[i].head(); ok && (first < 0 || comparesRows(&runs[i], &runs[first], reverse) < 0) {
				first = i
			}
		}
		if first < 0 {
			break
		}
		r := &runs[first]
		name, _, _ := r.head()
		r.at++
		if row, ok := r.rows.Value(name); ok && n >= (page-1)*size {
			rows, order = append(rows, member{name, row}), append(order, name)
		}
	}
	return setMember(setMember(o, "rows", rows), "order", order)
}

// comparesRows compares the heads of runs as [live.Order] does.
func comparesRows(a, b *rowRun, reverse bool) int {
	name, key, _ := a.head()
	other, otherKey, _ := b.head()
	if key == nil || otherKey == nil {
		return cmp.Or(boolCompare(key == nil, otherKey == nil), cmp.Compare(name, other))
	}
	c := compareKeys(key, otherKey)
	if reverse {
		c = -c
	}
	return cmp.Or(c, cmp.Compare(name, other))
}

// compareKeys compares keys, of which instants are too precise for floats.
func compareKeys(a, b any) int {
	x, isNumber := a.(json.Number)
	y, areNumbers := b.(json.Number)
	if isNumber && areNumbers {
		return cmp.Compare(intOf(x), intOf(y))
	}
	return compareValues(a, b)
}
