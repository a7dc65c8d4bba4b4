package mgmt

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/mgmt/live"
	"github.com/curfewmq/curfew/core/mgmt/rows"
)

// The asked node makes the live views of a cluster, each second, from its own state and the states of the other nodes. Its readers share
// them like the views of a single broker. Nodes send the sort keys of their rows, so that the asked node can put a page together.

// partParameter tells the readers of parameters that the state is merged with others, so that pages begin at the first row. Requests cannot
// have it.
const partParameter = "\x00part"

// watched is the scope of live views: the asked node puts them together.
var watched = together("all nodes, merged", unchangedPart, func(c *request, e *endpoint) error {
	c.joins = true
	return e.do(c)
})

// merged returns a maker that joins the states of all nodes; own makes this node's state.
func (w *watcher) merged(own maker) maker {
	q, _ := url.ParseQuery(w.query) // which readLive has made
	q.Del(partParameter)
	return func() (object, error) {
		o, err := own()
		if err != nil {
			return nil, err
		}
		parts, missing := w.askLive(q)
		g := gathering{request: w.request, parts: append([]part{w.api.nodes.ownPart(nil)}, parts...)}
		g.findUnserved()
		states := []object{o}
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

// askLive asks all other nodes for their states.
func (w *watcher) askLive(q url.Values) (parts []part, missing []string) {
	ctx, cancel := context.WithTimeout(context.Background(), partTime+partLength) // the state is for many readers
	defer cancel()
	r := (&http.Request{Method: http.MethodGet, URL: &url.URL{Path: root + "live", RawQuery: q.Encode()}, Header: http.Header{}}).WithContext(ctx)
	asking := &request{caller: caller{api: w.api, w: &recorder{header: http.Header{}}, r: r, user: w.user}}
	asking.holding = &holding{of: w.api.nodes.parts}
	defer asking.holding.end()
	if err := asking.holding.begin(ctx); err != nil {
		return nil, w.otherNames()
	}
	return asking.api.nodes.askOthers(asking, &question{merged: true})
}

func (w *watcher) otherNames() (all []string) {
	for _, n := range w.api.nodes.others() {
		all = append(all, n.Name)
	}
	return all
}

// clusterKey returns a key for the parts of a cluster that a reader may see.
func (w *watcher) clusterKey() string {
	var key strings.Builder
	key.WriteString("\x00for " + w.user.Name)
	for _, name := range w.api.nodes.placements.VHosts() {
		if w.mayEnter(name) {
			key.WriteString("\x00" + name)
		}
	}
	return key.String()
}

// mergeStates puts the states of a view together. The first one is this node's.
func mergeStates(view string, states []object, q url.Values) object {
	page, size, _ := pageOf(q, maxPage) // which readLive has checked
	o := slices.Clone(states[0]).Without(live.KeysMember)
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
		filtered := intOf(valueOf(o, "filtered_count"))
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

// mergeNow adds up the states of the nodes.
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
	case areObjects && rows.Compare(valueOf(y, "at"), valueOf(x, "at")) < 0:
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

// worstLateness sets each lateness to the higher one of two nodes: quantiles cannot be added.
func worstLateness(o, other object) object {
	for _, name := range []string{"lateness", "overstay"} {
		theirs, ok := valueOf(other, name).(object)
		if !ok {
			continue
		}
		own, ok := valueOf(o, name).(object)
		if ok && rows.Compare(valueOf(own, "p99"), valueOf(theirs, "p99")) >= 0 {
			continue
		}
		o = setMember(o, name, theirs)
	}
	return o
}

// mergeRows sets the rows to one page of the rows of all states.
func mergeRows(o object, states []object, page, size int, reverse bool) object {
	m := rows.NewMerge(rows.Order{Reverse: reverse, AbsentLast: true, Steady: true})
	for _, s := range states {
		_ = m.Add(&rows.Run{Next: rowsOf(s)}) // they can be read
	}
	shown, order := object{}, []string{}
	for n := range page * size {
		r := m.Next()
		if r == nil {
			break
		}
		if row := r.Value.(member); n >= (page-1)*size {
			shown, order = append(shown, row), append(order, row.Name())
		}
	}
	return setMember(setMember(o, "rows", shown), "order", order)
}

// rowsOf returns a function that returns the next row of a state, which is a member of its rows; nil at the end.
func rowsOf(s object) func() (*rows.Row, error) {
	all, _ := valueOf(s, "rows").(object)
	keys, _ := valueOf(s, live.KeysMember).([]any)
	i := 0
	return func() (*rows.Row, error) {
		if i >= min(len(all), len(keys)) {
			return nil, nil //nolint:nilnil // the end
		}
		r := &rows.Row{Keys: rows.Keys{Key: keys[i], Natural: all[i].Name()}, Value: all[i]}
		i++
		return r, nil
	}
}
