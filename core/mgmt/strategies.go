package mgmt

import "slices"

// someQueues is how many queues of a strategy are named.
const someQueues = 20

// strategyUse counts the queues with a strategy, among the queues that the user may see.
type strategyUse struct {
	queues int
	some   []object
}

func (a *API) strategies(c *request) error { return listObjects(c, a.strategiesFor(c)) }

// strategiesFor returns the expiry strategies that queues can choose, each with the number of queues that have it, among the queues that
// the user may see.
func (a *API) strategiesFor(c *request) []object {
	var names []string
	standard := ""
	if a.Lab != nil {
		names, standard = a.Lab.Strategies()
	}
	used := map[string]*strategyUse{}
	for _, v := range c.visible() {
		for _, m := range v.Queues() {
			cfg := m.Config()
			u := used[cfg.Strategy]
			if u == nil {
				u = &strategyUse{}
				used[cfg.Strategy] = u
			}
			if u.queues++; len(u.some) < someQueues {
				u.some = append(u.some, object{{"vhost", cfg.VHost}, {"name", cfg.Name}})
			}
		}
	}
	all := []object{}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		u := used[name]
		if u == nil {
			u = &strategyUse{}
		}
		all = append(all, object{{"name", name}, {"default", name == standard}, {"queues", u.queues}, {"some", u.some}})
	}
	return all
}
