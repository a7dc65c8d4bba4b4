package broker

import (
	"cmp"
	"fmt"
	"runtime"
	"strings"

	"github.com/curfewmq/curfew/core/config"
	"github.com/curfewmq/curfew/core/metrics"
)

// logStart logs the version, the configuration file and the data directory.
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

// logLimits logs the limits at which publishers wait, and the addresses for spans and metrics.
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

// logPolicies logs the names of expiry policies, loaded and failed.
func (b *Broker) logPolicies() {
	if b.o.Policies == nil {
		return
	}
	loaded, failed := namePolicies(b.o.Policies.Measure())
	if len(loaded) > 0 {
		b.log.Info("policies", "loaded", strings.Join(loaded, ", "))
	}
	if len(failed) > 0 {
		b.log.Warn("policies are not loaded, or not yet: until then on-error decides about the messages of their queues", "policies", strings.Join(failed, ", "))
	}
}

// namePolicies returns the names and digests of policies.
func namePolicies(all []metrics.Policy) (loaded, failed []string) {
	const digits = 12 // of a digest, like tools for containers
	for _, p := range all {
		name := p.Name
		if p.Digest != "" { // a node of a cluster knows the digest once it has compiled the module
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
