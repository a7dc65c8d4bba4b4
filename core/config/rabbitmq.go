package config

import (
	"bytes"
	"errors"
	"regexp"
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

// foreign returns [errRabbitConf] or [errErlangTerms] for a configuration file of RabbitMQ, whatever its name, and nil for others. A file in
// which settings in RabbitMQ's form are a minority is taken for YAML with mistakes.
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

// matches reports whether a pattern matches the key. In a pattern, a part that begins with $ stands for any one part, and * at the end for one
// or more parts.
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
