package ctl

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the real effects into the scripts in testdata")

// A script is a list of calls. The first characters of a line tell its kind:
//
//	# a comment
//	$ the call, without the tool's name
//	= a line on standard input
//	> a request from the tool
//	< the API's answer to it, status and body
//	| a line on standard output
//	! a line on standard error
//	? the exit status, if it is not 0
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatal("there are no scripts", err)
	}
	for _, name := range scripts {
		t.Run(filepath.Base(name), func(t *testing.T) { play(t, name) })
	}
}

// scene is a call with its expected effects.
type scene struct {
	comments, call []string
	input          string
	answers        []string
	lines          []string // all that follows the call
}

func play(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var played bytes.Buffer
	for _, s := range scenes(t, string(text)) {
		got := s.play(t)
		if want := strings.Join(s.lines, "\n"); got != want && !*rewrite {
			t.Errorf("$ %s\ngot\n%s\nwant\n%s", strings.Join(s.call, " "), got, want)
		}
		played.WriteString(strings.Join(append(s.comments, got), "\n") + "\n\n")
	}
	if *rewrite {
		if err := os.WriteFile(file, bytes.TrimSuffix(played.Bytes(), []byte("\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func scenes(t *testing.T, text string) []*scene {
	t.Helper()
	var all []*scene
	next := &scene{}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		rest := ""
		if len(line) > 2 {
			rest = line[2:]
		}
		switch {
		case line == "":
			continue
		case line[0] == '#':
			next.comments = append(next.comments, line)
			continue
		case line[0] == '$':
			next.call = words(t, rest)
			all = append(all, next)
			next = &scene{}
		}
		s := all[len(all)-1]
		s.lines = append(s.lines, line)
		switch line[0] {
		case '=':
			s.input += rest + "\n"
		case '<':
			s.answers = append(s.answers, rest)
		}
	}
	return all
}

// words splits a line as a shell does, with quotes.
func words(t *testing.T, line string) []string {
	t.Helper()
	var all []string
	var word strings.Builder
	quote, inWord := rune(0), false
	for _, r := range line {
		switch {
		case r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case r == ' ' && inWord:
			all = append(all, word.String())
			word.Reset()
			inWord = false
		case r != ' ':
			word.WriteRune(r)
			inWord = true
		}
	}
	if quote != 0 {
		t.Fatalf("an open quote in %s", line)
	}
	if inWord {
		all = append(all, word.String())
	}
	return all
}

// fake is an API that gives prepared answers and records the requests.
type fake struct {
	mu      sync.Mutex // guards the fields below
	answers []string
	log     []string
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	user, password, _ := r.BasicAuth()
	request := fmt.Sprintf("> %s %s", r.Method, r.RequestURI)
	if len(body) > 0 {
		request += " " + string(body)
	}
	if user != "guest" || password != "guest" {
		request += fmt.Sprintf(" as %s/%s", user, password)
	}
	if reason := r.Header.Get("X-Reason"); reason != "" {
		request += " because " + reason
	}
	f.log = append(f.log, request)
	if len(f.answers) == 0 {
		f.log = append(f.log, "< 599 unexpected")
		w.WriteHeader(599)
		return
	}
	answer := f.answers[0]
	f.answers = f.answers[1:]
	f.log = append(f.log, "< "+answer)
	status, text, _ := strings.Cut(answer, " ")
	code := 0
	_, _ = fmt.Sscan(status, &code)
	w.Header().Set("Content-Type", cmp.Or(r.Header.Get("Accept"), "application/json"))
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text)
}

// play makes the call and returns the lines of the scene with the real effects.
func (s *scene) play(t *testing.T) string {
	t.Helper()
	api := &fake{answers: s.answers}
	server := httptest.NewServer(api)
	defer server.Close()
	var stdout, stderr strings.Builder
	p := &Program{
		Name: "rabbitmqctl", Version: "1.2.3", Environ: []string{urlVariable + "=" + server.URL},
		Stdin: strings.NewReader(s.input), Stdout: &stdout, Stderr: &stderr,
	}
	status := p.Run(s.call)
	lines := []string{s.lines[0]}
	for line := range strings.Lines(s.input) {
		lines = append(lines, "= "+strings.TrimSuffix(line, "\n"))
	}
	lines = append(lines, api.log...)
	lines = append(lines, prefixed("|", stdout.String())...)
	lines = append(lines, prefixed("!", stderr.String())...)
	if status != 0 {
		lines = append(lines, fmt.Sprintf("? %d", status))
	}
	for i := range lines {
		lines[i] = strings.ReplaceAll(lines[i], server.URL, "http://broker")
	}
	return strings.Join(lines, "\n")
}

func prefixed(mark, text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		all = append(all, strings.TrimSuffix(mark+" "+strings.TrimSuffix(line, "\n"), " "))
	}
	return all
}
