package live

import (
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/mgmt/pattern"
	"github.com/curfewmq/curfew/core/vhost"
)

// Selection is the queues whose names pass, in the vhosts that see selects. It stays the same until a queue is created or deleted. It
// belongs to one view.
type Selection struct {
	see    func(*vhost.VHost) bool
	name   *pattern.Filter // nil = all names pass
	set    uint64
	chosen []*Entry
}

// NewSelection returns a selection that has not looked at any queue yet.
func NewSelection(see func(*vhost.VHost) bool, name *pattern.Filter) *Selection {
	return &Selection{see: see, name: name}
}

// Read is [Survey.Read] with the queues of the selection. It compares names before it calls fn, while others may read the survey.
func (c *Selection) Read(s *Survey, fn func(*Reading, []*Entry)) error {
	var entries []*Entry
	var names []string
	stale := false
	s.Read(func(r *Reading) {
		if stale = c.set != r.Set || c.chosen == nil; !stale {
			fn(r, c.chosen)
			return
		}
		c.set = r.Set
		for _, t := range r.Tenants {
			if !c.see(t.VHost) {
				continue
			}
			entries = append(entries, t.Entries...)
			for _, e := range t.Entries {
				names = append(names, e.Config.Name)
			}
		}
	})
	if !stale {
		return nil
	}
	if err := c.choose(entries, names); err != nil {
		return err
	}
	s.Read(func(r *Reading) { fn(r, c.chosen) })
	return nil
}

// choose keeps the entries with names that pass.
func (c *Selection) choose(entries []*Entry, names []string) error {
	c.chosen = []*Entry{}
	run := c.name.Begin(nil, pattern.MostTime)
	for i, e := range entries {
		if run.Passes(names[i]) {
			c.chosen = append(c.chosen, e)
		}
	}
	if err := run.End(); err != nil {
		c.chosen = nil
		return jsonobj.Errorf("%v", err)
	}
	return nil
}
