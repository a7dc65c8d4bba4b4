package metrics

import (
	"maps"
	"slices"
)

// gatherPlugins adds the plugins' faults, and the messages that their filters kept out. A series appears when its count is no
// longer 0.
func (c *Collector) gatherPlugins(b *builder) {
	if c.Filtered != nil {
		filtered := b.family(Counter, "curfew_plugin_filtered_messages_total", "Messages that a plugin's filter kept out of an exchange")
		counts := c.Filtered()
		for _, plugin := range slices.Sorted(maps.Keys(counts)) {
			filtered.add(label("plugin", plugin), float64(counts[plugin]))
		}
	}
	if c.Faults == nil {
		return
	}
	panics := b.family(Counter, "curfew_plugin_panics_total", "Calls of a plugin that panicked")
	verdicts := b.family(Counter, "curfew_plugin_invalid_verdicts_total", "Verdicts of a plugin that were invalid and put back")
	for _, f := range c.Faults() {
		l := label("plugin", f.Plugin, "hook", f.Point)
		if f.Panics > 0 {
			panics.add(l, float64(f.Panics))
		}
		if f.Verdicts > 0 {
			verdicts.add(l, float64(f.Verdicts))
		}
	}
}
