package ctl

import (
	"io"
	"net/http"
	"net/http/httptest"
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
