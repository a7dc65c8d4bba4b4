package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The parts of a translation that read several lines together.
const (
	partListeners    = "listeners"
	partTLS          = "tls"
	partManagement   = "management"
	partCertificates = "certificates"
	partBackends     = "backends"
	partHashing      = "hashing"
	partWatermarks   = "watermarks"
	partUser         = "user"
	partLoopback     = "loopback"
	partProxy        = "proxy"
	partLog          = "log"
	partCluster      = "cluster"
)

// rabbitParts lists the parts in their order: some use the answers of earlier ones.
var rabbitParts = []struct {
	name      string
	translate func(*Translation)
}{
	{partTLS, (*Translation).tls},
	{partListeners, (*Translation).listeners},
	{partManagement, (*Translation).management},
	{partProxy, (*Translation).proxy},
	{partCertificates, (*Translation).certificates},
	{partBackends, (*Translation).backends},
	{partHashing, (*Translation).hashing},
	{partWatermarks, (*Translation).watermarks},
	{partUser, (*Translation).user},
	{partLoopback, (*Translation).loopback},
	{partLog, (*Translation).log},
	{partCluster, (*Translation).cluster},
}

// below returns the effective lines whose key matches a pattern, in their order.
func (t *Translation) below(pattern string) []*rabbitLine {
	var all []*rabbitLine
	for _, l := range t.lines {
		if t.said[l.key] == l && l.matches(pattern) {
			all = append(all, l)
		}
	}
	return all
}

func (t *Translation) answered(key string) bool {
	return slices.ContainsFunc(t.answers, func(a *answer) bool { return a.key == key })
}

// choice returns the line of a key if its value is one of the choices. It refuses any other value.
func (t *Translation) choice(key string, choices ...string) *rabbitLine {
	l := t.said[key]
	if l == nil || l.done {
		return nil
	}
	if !slices.Contains(choices, l.value) {
		t.refuse(l, "is not a choice", strings.Join(choices, ", "))
		return nil
	}
	return l
}

// truth returns the value of a line with a truth value; l is nil if there is no such line.
func (t *Translation) truth(key string) (says bool, l *rabbitLine) {
	l = t.choice(key, "true", "false")
	return l != nil && l.value == "true", l
}

// watermarks translates the limits for memory and disk. An absolute limit takes precedence over a relative one.
func (t *Translation) watermarks() {
	for _, w := range []struct{ section, key, suffix string }{
		{"vm_memory_high_watermark", "limits.memory-watermark", ""},
		{"disk_free_limit", "limits.disk-free", "x"},
	} {
		absolute, relative := t.said[w.section+".absolute"], t.said[w.section+".relative"]
		if absolute != nil {
			if size, err := informationSize(absolute.value); err != nil {
				t.refuse(absolute, err.Error(), informationUnits)
			} else {
				t.answer(w.key, size.String(), "", absolute)
			}
		}
		if relative == nil {
			continue
		}
		if absolute != nil {
			t.remark(relative, fmt.Sprintf("%s.absolute on line %d takes precedence", w.section, absolute.number))
			continue
		}
		f, err := strconv.ParseFloat(relative.value, 64)
		if err != nil || strings.ContainsFunc(relative.value, func(r rune) bool { return r != '.' && (r < '0' || r > '9') }) {
			t.refuse(relative, "is not a number", "a number such as 0.4")
			continue
		}
		value := formatShare(f) + w.suffix
		if f == 0 && w.suffix != "" {
			value = "0"
		}
		t.answer(w.key, value, "", relative)
	}
}

// log translates the level and the format. Our log goes to one place. If RabbitMQ's goes to the console, the console's settings take
// precedence, otherwise they come last.
func (t *Translation) log() {
	outputs := []string{"file", "default", "journald", "syslog", "console"}
	if l := t.said["log.console"]; l != nil && l.value == "true" {
		outputs = []string{"console", "file", "default", "journald", "syslog"}
	}
	levels := map[string]string{"debug": "debug", "info": "info", "notice": "info", "warning": "warn", "error": "error", "critical": "error", "alert": "error", "emergency": "error", "none": "error"}
	for _, output := range outputs {
		l := t.said["log."+output+".level"]
		if l == nil {
			continue
		}
		level, known := levels[l.value]
		note := ""
		if !known {
			t.refuse(l, "is not a log level", "debug, info, notice, warning, error, critical, alert, emergency, none")
			continue
		}
		if level == "error" && l.value != "error" {
			note = "error is the most severe level here"
		}
		t.answer("log.level", level, note, l)
	}
	for _, output := range outputs {
		if l := t.choice("log."+output+".formatter", "plaintext", "json"); l != nil {
			t.answer("log.format", map[string]string{"plaintext": "text", "json": "json"}[l.value], "", l)
		}
	}
}

func (t *Translation) cluster() {
	if l := t.said["cluster_name"]; l != nil {
		t.answer("cluster.name", l.value, "this is for a cluster; a broker alone has its name from curfew ctl set_cluster_name", l)
	}
	var hosts []string
	nodes := t.below("cluster_formation.classic_config.nodes.$node")
	for _, l := range nodes {
		_, host, _ := strings.Cut(l.value, "@")
		hosts = append(hosts, cmp.Or(host, l.value)+":5680")
	}
	why := whyDiscovery
	if len(hosts) == clusterSize {
		why = fmt.Sprintf("a cluster needs cluster.nodes: [%s], and on each node cluster.advertise, its own one of these (core/cluster/README.md)", shorten(strings.Join(hosts, ", ")))
	}
	for _, l := range nodes {
		t.remark(l, why)
	}
}
