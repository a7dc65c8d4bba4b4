package broker

import (
	"cmp"
	"fmt"
	"runtime"
	"strings"

	"github.com/curfewmq/curfew/core/config"
	"github.com/curfewmq/curfew/core/metrics"
)

// logStart says what is started, and from what.
func (b *Broker) logStart() {
	b.log.Info("starting", "version", b.o.Program.Version, "commit", cmp.Or(b.o.Program.Revision, "unknown"), "go", runtime.Version(),
		"config", cmp.Or(absoluteFile(b.o.ConfigFile), "none"), "data", absolute(b.running.Data.Dir))
}

func absoluteFile(path string) string {
	if path == "" {
		return ""
	}
	return absolute(path)
}

// logLimits says when publishers wait, and where spans and metrics go.
func (b *Broker) logLimits(disk int64) {
	memory := "none"
	if b.limit > 0 {
		memory = config.Size(min(b.limit, 1<<62)).String()
	}
	b.log.Info("limits", "memory", memory, "disk_free", config.Size(disk).String())
	if b.o.Exporter != nil {
		traces, sent := b.o.Exporter.Collectors()
		b.log.Info("collector", "traces", traces, "metrics", sent)
	}
}

// logPolicies names the expiry policies, if there are any, and those that could not be loaded.
func (b *Broker) logPolicies() {
	if b.o.Policies == nil {
		return
	}
	loaded, failed := namePolicies(b.o.Policies.Measure())
	if len(loaded) > 0 {
		b.log.Info("policies", "loaded", strings.Join(loaded, ", "))
	}
	if len(failed) > 0 {
		b.log.Warn("policies are not loaded, or not yet: until then messages of their queues get what on-error says", "policies", strings.Join(failed, ", "))
	}
}

// namePolicies returns the names and digests of policies.
func namePolicies(all []metrics.Policy) (loaded, failed []string) {
	const digits = 12 // of a digest, as tools for containers show
	for _, p := range all {
		name := p.Name
		if p.Digest != "" { // a node of a cluster knows it when it has compiled the module
			name = fmt.Sprintf("%s (%.*s)", p.Name, digits, p.Digest)
		}
		if !p.Loaded {
			failed = append(failed, name)
			continue
		}
		loaded = append(loaded, name)
	}
	return loaded, failed
}
