package ctl

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// Clients choose names, tags and arguments. In tables, CSV, boxes and errors these could set the title of an operator's terminal, or
// forge rows, when standard output was not itself a terminal.
func TestNamesOfClientsForgeNothing(t *testing.T) {
	const evil = `evil\u001b]0;title\u0007\nforged\t0\r\u009b31m\u202e`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(r.URL.Path, "users") {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":"bad_request","reason":"`+evil+`"}`)
			return
		}
		_, _ = io.WriteString(w, `[{"name":"`+evil+`","arguments":{"`+evil+`":["`+evil+`"]},"vhost":"/"}]`)
	}))
	t.Cleanup(server.Close)
	for _, tt := range []struct {
		args  []string
		lines int
	}{
		{[]string{"list_queues", "name", "arguments", "--no-table-headers"}, 1},
		{[]string{"list_queues", "name", "arguments", "--formatter", "csv"}, 2},
		{[]string{"list_queues", "name", "arguments", "--formatter", "pretty_table"}, 5},
		{[]string{"list_queues", "name", "arguments", "--formatter", "json"}, 3},
		{[]string{"list_users"}, 0},
	} {
		_, stdout, stderr := run(nil, append(tt.args, "-q", "--url", server.URL)...)
		for _, r := range strings.NewReplacer("\n", "", "\t", "").Replace(stdout + stderr) {
			if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
				t.Errorf("%v: %q is printed", tt.args, r)
			}
		}
		if !strings.Contains(stdout+stderr, `evil\`) {
			t.Errorf("%v: got %s%s", tt.args, stdout, stderr)
		}
		if n := strings.Count(stdout, "\n"); n != tt.lines {
			t.Errorf("%v: %d lines, want %d: %s", tt.args, n, tt.lines, stdout)
		}
	}
}

// Options of a command may come before its name, as in rabbitmqctl. The value of such an option used to be taken for the command.
func TestOptionsBeforeTheCommand(t *testing.T) {
	for _, tt := range []struct{ words, command, values, operands string }{
		{"--vhost v list_queues name", "list_queues", "vhost=v", "name"},
		{"--sort lag top --once", "top", "once= sort=lag", ""},
		{"--count 3 -p list_queues peek q", "peek", "count=3 vhost=list_queues", "q"},
		{"--dry-run import_definitions file", "import_definitions", "dry-run=", "file"},
		{"--timeout 2h drain", "drain", "timeout=2h", ""},
		{"--queue events events", "events", "queue=events", ""},
		{"peek peek", "peek", "", "peek"},
	} {
		l, err := parse(strings.Fields(tt.words))
		if err != nil || l.command == nil {
			t.Errorf("%s: got command %v, error %v", tt.words, l.command, err)
			continue
		}
		var values []string
		for name, value := range l.values {
			values = append(values, name+"="+value)
		}
		slices.Sort(values)
		if l.command.name != tt.command || strings.Join(values, " ") != tt.values || strings.Join(l.operands, " ") != tt.operands {
			t.Errorf("%s: got %s, %q, %q", tt.words, l.command.name, values, l.operands)
		}
	}
	for _, words := range []string{"--sort lag", "--sort lag nothing", "-- top", "--once=1"} {
		if l, err := parse(strings.Fields(words)); err == nil && l.command != nil {
			t.Errorf("%s: got command %s", words, l.command.name)
		}
	}
}
