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
	for name, want := range map[string]string{"curfew ctl": "Warning: virtual host 'nosuch' does not exist\n", rabbitmqctl: ""} {
		var out, errs strings.Builder
		p := &Program{Name: name, Environ: []string{urlVariable + "=" + server.URL}, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs}
		if status := p.Run([]string{"list_queues", "-q", "-p", "nosuch"}); status != 0 || out.String() != "" || errs.String() != want {
			t.Errorf("%s: got status %d, %q, %q, want 0, nothing, %q", name, status, out.String(), errs.String(), want)
		}
	}
}
