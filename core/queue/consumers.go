package queue

import (
	"slices"
)

// consumers are a queue's consumers (nil: none ever), the ones with the highest priority first
// and, within a priority, in turn. Only those that have credit are looked at
// when a message is handed out.
type consumers struct {
	all    []*Consumer     // in the order they came
	groups []priorityGroup // highest priority first
	single bool            // single active consumer: only all[0] is served
}

// priorityGroup is the consumers of one priority that have credit.
type priorityGroup struct {
	priority int64
	active   []*Consumer
	turn     int // index in active of the one to serve next
}

func (cs *consumers) count() int {
	if cs == nil {
		return 0
	}
	return len(cs.all)
}

// add takes a consumer in.
func (cs *consumers) add(c *Consumer) {
	cs.all = append(cs.all, c)
	cs.refresh(c)
}

// remove takes a consumer out; it reports whether it was there.
func (cs *consumers) remove(c *Consumer) bool {
	if cs == nil {
		return false
	}
	i := slices.Index(cs.all, c)
	if i < 0 {
		return false
	}
	cs.all = slices.Delete(cs.all, i, i+1)
	cs.deactivate(c)
	cs.disband(c.Priority)
	if i == 0 && cs.single && len(cs.all) > 0 {
		cs.refresh(cs.all[0])
	}
	return true
}

// disband forgets the group of a priority that no consumer has any more.
func (cs *consumers) disband(priority int64) {
	if slices.ContainsFunc(cs.all, func(c *Consumer) bool { return c.Priority == priority }) {
		return
	}
	cs.groups = slices.DeleteFunc(cs.groups, func(g priorityGroup) bool { return g.priority == priority })
}

// removeAll takes every consumer out.
func (cs *consumers) removeAll() []*Consumer {
	if cs == nil {
		return nil
	}
	all := cs.all
	cs.all, cs.groups = nil, nil
	return all
}

// exclusive reports whether a consumer has the queue to itself.
func (cs *consumers) exclusive() bool { return cs.count() == 1 && cs.all[0].Exclusive }

// refresh is called when a consumer's credit may have come or gone.
func (cs *consumers) refresh(c *Consumer) {
	want := c.credit() > 0 && !c.removed && (!cs.single || cs.all[0] == c)
	if want == c.active {
		return
	}
	if !want {
		cs.deactivate(c)
		return
	}
	cs.group(c.Priority).add(c)
	c.active = true
}

func (cs *consumers) deactivate(c *Consumer) {
	if !c.active {
		return
	}
	c.active = false
	g := cs.group(c.Priority)
	i := slices.Index(g.active, c)
	g.active = slices.Delete(g.active, i, i+1)
	if i < g.turn {
		g.turn--
	}
	if len(g.active) == 0 {
		g.turn = 0
	}
}

// group returns the group of a priority, made where it belongs.
func (cs *consumers) group(priority int64) *priorityGroup {
	i, ok := slices.BinarySearchFunc(cs.groups, priority, func(g priorityGroup, p int64) int {
		switch {
		case g.priority > p:
			return -1
		case g.priority < p:
			return 1
		}
		return 0
	})
	if !ok {
		cs.groups = slices.Insert(cs.groups, i, priorityGroup{priority: priority})
	}
	return &cs.groups[i]
}

// serve returns the group to hand messages to now, nil when nobody wants any.
func (cs *consumers) serve() *priorityGroup {
	if cs == nil {
		return nil
	}
	for i := range cs.groups {
		if len(cs.groups[i].active) > 0 {
			return &cs.groups[i]
		}
	}
	return nil
}

// add takes a consumer in that comes after all that are there.
func (g *priorityGroup) add(c *Consumer) {
	if g.turn == 0 || g.turn >= len(g.active) {
		g.active, g.turn = append(g.active, c), 0
		return
	}
	g.active = slices.Insert(g.active, g.turn, c)
	g.turn++
}

// next returns the consumer whose turn it is.
func (g *priorityGroup) next() *Consumer {
	if g.turn >= len(g.active) {
		g.turn = 0
	}
	return g.active[g.turn]
}

// share returns how many messages a consumer gets before it is another's turn.
func (g *priorityGroup) share(c *Consumer) int {
	if len(g.active) > 1 {
		return 1
	}
	return min(c.credit(), maxBatch)
}

// credit returns how many messages would be taken at once.
func (cs *consumers) credit() int {
	if cs == nil {
		return 0
	}
	n := 0
	for i := range cs.groups {
		for _, c := range cs.groups[i].active {
			n += c.credit()
		}
	}
	return n
}
