package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Translation is RabbitMQ's rabbitmq.conf, translated to our keys. It prints a configuration that [Load] accepts.
type Translation struct {
	// Problems are the lines without effect: they cannot be read, have a key that RabbitMQ does not know, or a value that is invalid
	// for RabbitMQ or here. They are in the order of the lines.
	Problems []*Error

	file     string // path as given
	lines    []*rabbitLine
	said     map[string]*rabbitLine // effective lines by key
	answers  []*answer
	remarks  []remark
	settings []*setting // settings of a configuration made of the answers, only those that the answers set
}

// answer is a value for one of our keys.
type answer struct {
	key, value string
	of         []*rabbitLine // lines that led to it, in their order
	notes      []string      // differences to RabbitMQ's behaviour
	group      string        // the answers of a group are given together or not at all
}

// remark explains why a line has no answer.
type remark struct {
	line *rabbitLine
	why  string
}

// Translate translates RabbitMQ's configuration in the file at path.
func Translate(path string) (*Translation, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, &Error{Problem: fileProblem(path, err), Value: path, HasValue: true, Source: Source{Kind: FromFile, Name: path}}
	}
	return translate(path, b)
}

func translate(path string, b []byte) (*Translation, error) {
	t := &Translation{file: path, lines: parseRabbit(b), said: map[string]*rabbitLine{}}
	if len(t.lines) > 0 {
		if err := foreign(b); !errors.Is(err, errRabbitConf) {
			return nil, &Error{Problem: notRabbit(err), Value: path, HasValue: true, Source: Source{Kind: FromFile, Name: path}}
		}
	}
	t.sort()
	for _, part := range rabbitParts {
		part.translate(t)
	}
	t.convert()
	for _, l := range t.lines {
		if !l.done {
			t.remark(l, "says nothing without others")
		}
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(t.Problems, func(a, b *Error) int { return a.Source.Line - b.Source.Line })
	slices.SortStableFunc(t.remarks, func(a, b remark) int { return a.line.number - b.line.number })
	return t, nil
}

func notRabbit(err error) string {
	if errors.Is(err, errErlangTerms) {
		return "holds Erlang terms, which cannot be translated; accepted: a rabbitmq.conf, whose lines are KEY = VALUE"
	}
	return "is no rabbitmq.conf, whose lines are KEY = VALUE"
}

// sort finds the effective lines, and explains the others.
func (t *Translation) sort() {
	for _, l := range t.lines {
		switch {
		case l.problem != "":
			t.refuse(l, l.problem, "")
		case t.row(l) == nil:
			t.refuseKey(l)
		default:
			if before := t.said[l.key]; before != nil {
				t.remark(before, fmt.Sprintf("line %d overrides it", l.number))
			}
			t.said[l.key] = l
		}
	}
}

func (t *Translation) row(l *rabbitLine) *rabbitKey {
	for i := range rabbitKeys {
		for pattern := range strings.FieldsSeq(rabbitKeys[i].patterns) {
			if l.matches(pattern) {
				return &rabbitKeys[i]
			}
		}
	}
	return nil
}

func unknownRabbit(l *rabbitLine) string {
	if l.key == strings.ToUpper(l.key) && strings.ContainsFunc(l.key, func(r rune) bool { return 'A' <= r && r <= 'Z' }) {
		return "is a variable of rabbitmq-env.conf, not a key"
	}
	var known []string
	for _, k := range rabbitKeys {
		for pattern := range strings.FieldsSeq(k.patterns) {
			if !strings.ContainsAny(pattern, "*$") {
				known = append(known, pattern)
			}
		}
	}
	if len(l.key) > 100 {
		return "is not a key of RabbitMQ's"
	}
	if near := Nearest(l.key, known); near != "" && near != normal(l.key) {
		return "is not a key of RabbitMQ's; did you mean " + near + "?"
	}
	return "is not a key of RabbitMQ's"
}

// convert answers the lines that correspond to a key of ours, and explains the others.
func (t *Translation) convert() {
	for _, l := range t.lines {
		if l.done {
			continue
		}
		row := t.row(l)
		switch {
		case row.part != "": // which has passed it over
		case row.key == "":
			t.remark(l, row.why)
		default:
			value, note, err := row.how.convert(l.value)
			if err != nil {
				t.refuse(l, err.Error(), row.how.accepts)
				continue
			}
			t.answer(row.key, value, note, l)
		}
	}
}

// answer gives one of our keys a value. The first answer takes precedence.
func (t *Translation) answer(key, value, note string, of ...*rabbitLine) {
	if i := slices.IndexFunc(t.answers, func(a *answer) bool { return a.key == key }); i >= 0 {
		for _, l := range of {
			if !l.done {
				t.remark(l, fmt.Sprintf("%s is that of line %d", key, t.answers[i].of[0].number))
			}
		}
		return
	}
	slices.SortStableFunc(of, func(a, b *rabbitLine) int { return a.number - b.number })
	a := &answer{key: key, value: value, of: slices.Compact(of)}
	if note != "" {
		a.notes = append(a.notes, note)
	}
	for _, l := range of {
		l.done = true
	}
	t.answers = append(t.answers, a)
}

// remark records why lines have no answer.
func (t *Translation) remark(l *rabbitLine, why string) {
	l.done = true
	t.remarks = append(t.remarks, remark{l, why})
}

// refuse reports a line that has no effect.
func (t *Translation) refuse(l *rabbitLine, problem, accepts string) {
	e := &Error{Key: shorten(l.key), Problem: problem, Accepted: accepts, Source: Source{Kind: FromFile, Name: t.file, Line: l.number}}
	if text := strings.TrimSpace(l.shown()); text != "" && text != hidden {
		e.Value, e.HasValue = text, true
	}
	t.Problems = append(t.Problems, e)
	text := "LEFT OUT, because it " + problem
	if accepts != "" {
		text += "; accepted: " + accepts
	}
	t.remark(l, text)
}

// refuseKey reports a line whose key RabbitMQ does not know.
func (t *Translation) refuseKey(l *rabbitLine) {
	t.refuse(l, unknownRabbit(l), "")
	e := t.Problems[len(t.Problems)-1]
	e.Value, e.HasValue = "", false // the value is not the problem
}

// withdraw removes an answer that Load does not accept, and the rest of its group.
func (t *Translation) withdraw(a *answer, why *Error) {
	t.answers = slices.DeleteFunc(t.answers, func(b *answer) bool { return b == a || a.group != "" && b.group == a.group })
	problem := "is for " + plainName(a.key) + ", and "
	if why.Key != a.key {
		problem += plainName(why.Key) + " "
	}
	for _, l := range a.of {
		t.refuse(l, problem+why.Problem, why.Accepted)
	}
}

// check removes the answers that no valid configuration can have, one after another, and stores the settings of the others.
func (t *Translation) check() error {
	for {
		var flags []Flag
		for i, a := range t.answers {
			flags = append(flags, Flag{Name: strconv.Itoa(i), Key: a.key, Value: a.value})
		}
		c, err := Load(Input{Flags: flags})
		if err == nil {
			t.settings = slices.DeleteFunc(c.settings, func(s *setting) bool { return s.source.Kind != FromFlag })
			return nil
		}
		wrong, _ := errors.AsType[*Error](err)
		if wrong == nil {
			return err
		}
		i, err := strconv.Atoi(wrong.Source.Name)
		if err != nil || wrong.Source.Kind != FromFlag {
			return wrong // no answer is to blame: no configuration would be valid
		}
		t.withdraw(t.answers[i], wrong)
	}
}

// Counts returns how many of our keys the translation sets, and how many lines have no answer.
func (t *Translation) Counts() (keys, without int) {
	return len(t.settings), len(t.remarks) - len(t.Problems)
}

// Print writes the configuration. A comment after each value names its source, and comments at the end list the lines without
// effect. With explain, comments above each key explain it as [Config.Print] does. Passwords are printed.
func (t *Translation) Print(w io.Writer, explain bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s, translated by curfew config --from.\n", oneLine(printable(filepath.Base(t.file))))
	if slices.ContainsFunc(t.settings, func(s *setting) bool { return s.value.secret }) {
		b.WriteString("# This file has a password: only the broker should be able to read it.\n")
	}
	var open []string
	for i, s := range t.settings {
		path := strings.Split(s.key, ".")
		sections, indent := path[:len(path)-1], strings.Repeat("  ", len(path)-1)
		if i == 0 || explain || !slices.Equal(open[:min(1, len(open))], sections[:min(1, len(sections))]) {
			b.WriteString("\n")
		}
		openSections(&b, open, sections)
		open = sections
		a := t.answerOf(s)
		if explain {
			b.WriteString(s.explanation(indent))
		}
		for _, note := range a.notes {
			b.WriteString(indent + "# " + upperFirst(note) + ".\n")
		}
		value := s.value.YAML()
		if s.value.secret {
			value = quote(a.value)
		}
		fmt.Fprintf(&b, "%-*s # %s\n", commentColumn-1, indent+quote(plainName(path[len(path)-1]))+": "+value, a.source())
	}
	t.printRemarks(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *Translation) printRemarks(b *strings.Builder) {
	if len(t.remarks) == 0 {
		return
	}
	b.WriteString("\n# These lines have no key here:\n#\n")
	for _, r := range t.remarks {
		l := r.line
		text := l.shown()
		if l.key != "" {
			text = l.key + " = " + text
		}
		fmt.Fprintf(b, "#%5d  %s\n#       %s\n", l.number, printable(shorten(strings.TrimSpace(text))), printable(r.why))
	}
}

func (t *Translation) answerOf(s *setting) *answer {
	return t.answers[slices.IndexFunc(t.answers, func(a *answer) bool { return a.key == s.key })]
}

// source names the lines that led to an answer.
func (a *answer) source() string {
	const most = 3
	var words []string
	for i, l := range a.of {
		if i == most {
			return strings.Join(words, ", ") + ", …"
		}
		words = append(words, fmt.Sprintf("line %d: %s", l.number, printable(shorten(l.key))))
	}
	return cmp.Or(strings.Join(words, ", "), "no line")
}

// printable returns s as text that is allowed in a comment.
func printable(s string) string {
	if printsAsYAML(s) {
		return oneLine(s)
	}
	q := strconv.QuoteToASCII(s)
	return q[1 : len(q)-1]
}

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
