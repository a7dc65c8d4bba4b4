package mgmt

import (
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "make what the API answers the content of the scripts")

// The scripts in testdata are requests and what is answered, as the API and a RabbitMQ have it:
//
//	> [NAME:PASSWORD] METHOD PATH [BODY]
//	< STATUS [HEADERS that matter] [BODY]
//
// Requests without a name are those of guest, the name "-" is nobody. Every script has a broker of its own.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	must(t, err)
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			script, err := os.ReadFile(name)
			must(t, err)
			got := newRig(t).play(string(script))
			if *rewrite {
				must(t, os.WriteFile(name, []byte(got), 0o600))
				return
			}
			compare(t, got, string(script))
		})
	}
}

func compare(t *testing.T, got, want string) {
	t.Helper()
	gots, wants := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range wants {
		if i >= len(gots) || gots[i] != wants[i] {
			t.Errorf("line %d: got\n%s\nwant\n%s\nafter\n%s", i+1, line(gots, i), wants[i], line(wants, i-1))
		}
	}
}

func line(lines []string, i int) string {
	if i < 0 || i >= len(lines) {
		return ""
	}
	return lines[i]
}

// play makes the requests of a script and returns it with the answers.
func (r *rig) play(script string) string {
	r.t.Helper()
	var b strings.Builder
	for l := range strings.Lines(script) {
		if strings.HasPrefix(l, "<") {
			continue
		}
		b.WriteString(l)
		if request, ok := strings.CutPrefix(strings.TrimSpace(l), "> "); ok {
			b.WriteString(r.ask(request))
		}
	}
	return b.String()
}

func (r *rig) ask(request string) string {
	r.t.Helper()
	user := guest
	if first, rest, _ := strings.Cut(request, " "); first == "-" || strings.Contains(first, ":") {
		user, request = first, rest
	}
	method, rest, _ := strings.Cut(request, " ")
	path, body, _ := strings.Cut(rest, " ")
	return answer(r.serve(r.request(user, method, path, body)))
}

func answer(w *httptest.ResponseRecorder) string {
	var b strings.Builder
	fmt.Fprintf(&b, "< %d", w.Code)
	for _, name := range []string{"Allow", "Location", "Www-Authenticate", "Retry-After"} {
		if v := w.Header().Get(name); v != "" {
			fmt.Fprintf(&b, " [%s: %s]", name, v)
		}
	}
	if w.Body.Len() > 0 {
		b.WriteString(" " + strings.TrimSpace(w.Body.String()))
	}
	for _, m := range masks {
		masked := m.find.ReplaceAllString(b.String(), m.show)
		b.Reset()
		b.WriteString(masked)
	}
	return b.String() + "\n"
}

// masks hide values that are never the same twice.
var masks = []struct {
	find *regexp.Regexp
	show string
}{
	{regexp.MustCompile(`"password_hash":"[^"]+"`), `"password_hash":"HASH"`},
	{regexp.MustCompile(`"os_pid":"[0-9]+"`), `"os_pid":"PID"`},
	{regexp.MustCompile(`"(uptime|proc_used|port)":[0-9]+`), `"$1":0`},
	{regexp.MustCompile(`"ports":\[[0-9,]+\]`), `"ports":[0]`},
	{regexp.MustCompile(`"(oldest_message_age)":[0-9]+`), `"$1":0`},
}
