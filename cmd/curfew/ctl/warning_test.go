package ctl

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Lists of a virtual host that does not exist were empty without a word. Scripts that call rabbitmqctl still get what they got.
func TestListsOfNoVirtualHost(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	for _, tt := range []struct {
		name   string
		status int
		want   string
	}{
		{"curfew ctl", dataError, "Virtual host 'nosuch' does not exist\n"},
		{rabbitmqctl, 0, ""},
	} {
		var out, errs strings.Builder
		p := &Program{Name: tt.name, Environ: []string{urlVariable + "=" + server.URL}, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs}
		for _, command := range []string{"list_queues", "list_exchanges", "list_bindings", "list_consumers"} {
			out.Reset()
			errs.Reset()
			if status := p.Run([]string{command, "-q", "-p", "nosuch"}); status != tt.status || out.String() != "" || errs.String() != tt.want {
				t.Errorf("%s %s: got status %d, %q, %q, want %d, nothing, %q", tt.name, command, status, out.String(), errs.String(), tt.status, tt.want)
			}
		}
	}
}
