package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The formats of RabbitMQ's configuration files. No valid YAML configuration resembles them.
var (
	errRabbitConf  = errors.New("is in the format of rabbitmq.conf")
	errErlangTerms = errors.New("holds Erlang terms, as RabbitMQ's advanced.config")
)

var (
	rabbitSetting = regexp.MustCompile(`^[ \t]*((?:\\\.|[A-Za-z0-9_-])+(?:\.(?:\\\.|[A-Za-z0-9_-])+)*)[ \t]*=[ \t]*(.*)$`)
	rabbitInclude = regexp.MustCompile(`^[ \t]*include[ \t]+([^ \t#]+)`)
	erlangTerms   = regexp.MustCompile(`(?s)^\[(\s*\{.*)?\s*\]\s*\.$`)
	erlangComment = regexp.MustCompile(`(?m)^[ \t]*%.*$`)
)

// foreign returns [errRabbitConf] or [errErlangTerms] for a configuration file of RabbitMQ,
// whatever its name, and nil for others. A file in which settings in RabbitMQ's form are a
// minority is taken for YAML with mistakes.
func foreign(b []byte) error {
	if erlangTerms.Match(bytes.TrimSpace(erlangComment.ReplaceAll(b, nil))) {
		return errErlangTerms
	}
	settings, others := 0, 0
	for line := range bytes.Lines(b) {
		line = bytes.TrimRight(bytes.TrimPrefix(line, []byte("\xef\xbb\xbf")), "\r\n")
		switch trimmed := bytes.TrimSpace(line); {
		case len(trimmed) == 0, trimmed[0] == '#':
		case rabbitSetting.Match(line), rabbitInclude.Match(line):
			settings++
		case settings == 0:
			return nil // YAML begins with a key
		default:
			others++
		}
	}
	if settings > others {
		return errRabbitConf
	}
	return nil
}

// rabbitLine is a line of a rabbitmq.conf that is neither empty nor a comment.
type rabbitLine struct {
	number  int      // from 1
	key     string   // as written, "" = the line is not a setting
	parts   []string // parts of the key; dots may be part of a name
	value   string
	problem string // why the line cannot be read, "" = it is a setting; continues a sentence that begins with the key
	done    bool   // the translation has dealt with the line
}

// parseRabbit reads a rabbitmq.conf as RabbitMQ 3.13 does. It returns each line that is not empty or a comment.
func parseRabbit(b []byte) []*rabbitLine {
	var lines []*rabbitLine
	number := 0
	for raw := range strings.Lines(string(b)) {
		number++
		if number == 1 {
			raw = strings.TrimPrefix(raw, "\ufeff")
		}
		text := strings.TrimRight(strings.TrimSuffix(strings.TrimSuffix(raw, "\n"), "\r"), " \t")
		if start := strings.TrimLeft(text, " \t"); start == "" || start[0] == '#' {
			continue
		}
		l := &rabbitLine{number: number}
		l.read(text)
		lines = append(lines, l)
	}
	return lines
}

func (l *rabbitLine) read(text string) {
	m := rabbitSetting.FindStringSubmatch(text)
	switch included := rabbitInclude.FindStringSubmatch(text); {
	case m == nil && included != nil:
		l.key, l.value, l.problem = "include", included[1], "is not followed: translate the files that it names by themselves"
		return
	case m == nil:
		l.value, l.problem = text, "is not a setting such as heartbeat = 60"
		return
	}
	l.key, l.value = m[1], m[2]
	l.parts = strings.Split(strings.ReplaceAll(l.key, `\.`, dot), ".")
	for i := range l.parts {
		l.parts[i] = plainName(l.parts[i])
	}
	l.readValue()
	switch {
	case l.problem != "":
	case !printsAsYAML(l.value):
		l.problem = "has a byte that is no text"
	case strings.Contains(l.value, "$("):
		l.problem = "refers to something else by $(...): write the value itself"
	case strings.HasPrefix(l.value, "encrypted:"):
		l.problem = "is encrypted for RabbitMQ: write the value itself"
	}
}

// readValue removes quotes and comments from the value. Outside quotes, a # always begins a comment.
func (l *rabbitLine) readValue() {
	if rest, isQuoted := strings.CutPrefix(l.value, "'"); isQuoted {
		value, after, closed := strings.Cut(rest, "'")
		after = strings.TrimLeft(after, " \t")
		switch {
		case !closed:
			l.problem = "has a quote that is not closed on its line"
		case after != "" && after[0] != '#':
			l.problem = "has something behind its quotes"
		}
		l.value = value
		return
	}
	value, _, _ := strings.Cut(l.value, "#")
	l.value = strings.TrimRight(value, " \t")
	if l.value == "" {
		l.problem = "has no value"
	}
}

// printsAsYAML reports whether a YAML file may contain s, as text or in a comment.
func printsAsYAML(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return r != '\t' && (r < ' ' || 0x7f <= r && r < 0xa0 || r == 0xfeff || r == 0xfffe || r == 0xffff)
	})
}

// secretKey matches keys whose values are not repeated in comments and errors.
var secretKey = regexp.MustCompile(`(?i)(pass|password|passwd|secret|token|cookie|secret_key|access_key_id|psk_identity|PrivateKey|PrivateKeyInfo)$`)

// shown returns the value for use in comments and errors.
func (l *rabbitLine) shown() string {
	if l.key != "" && secretKey.MatchString(l.key) {
		return hidden
	}
	return shorten(WithoutLogin(l.value))
}

// matches reports whether a pattern matches the key. In a pattern, a part that begins with
// $ stands for any one part, and * at the end for one or more parts.
func (l *rabbitLine) matches(pattern string) bool {
	for _, part := range l.parts {
		var want string
		want, pattern, _ = strings.Cut(pattern, ".")
		switch {
		case want == "*":
			return true
		case want != part && !strings.HasPrefix(want, "$"):
			return false
		}
	}
	return pattern == ""
}

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
