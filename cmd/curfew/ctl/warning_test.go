package ctl

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Lists of a virtual host that does not exist were once empty without an error. Under the name rabbitmqctl they still are.
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

// A node of a cluster whose answer lacks something says so in headers; the tool prints warnings.
func TestIncompleteAnswers(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Curfew-Unreachable", "curfew@b:5680, curfew@c:5680")
		w.Header().Set("Curfew-Missing-Vhosts", "%2F, or%2Cders")
		w.Header().Set("Curfew-Stale", "registry")
		_, _ = w.Write([]byte("[]"))
	}))
	t.Cleanup(server.Close)
	var out, errs strings.Builder
	p := &Program{Name: "curfew ctl", Environ: []string{urlVariable + "=" + server.URL}, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs}
	if status := p.Run([]string{"list_vhosts", "-s"}); status != 0 || out.String() != "" {
		t.Errorf("got status %d, %q", status, out.String())
	}
	want := "Warning: no answer from curfew@b:5680, curfew@c:5680: their part of the answer is missing\n" +
		"Warning: the virtual hosts '/', 'or,ders' have no owner now: their part is missing\n" +
		"Warning: the node does not reach a majority of the cluster's nodes, or lacks the latest changes: the answer may be out of date\n"
	if errs.String() != want {
		t.Errorf("got %q, want %q", errs.String(), want)
	}
}

// await_online_nodes waits for nodes that do not answer yet, so these cause no warning.
func TestAwaitedNodesAreNoWarning(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Curfew-Unreachable", "curfew@c:5680")
		_, _ = w.Write([]byte(`[{"name":"a","running":true},{"name":"b","running":true},{"name":"c","running":false}]`))
	}))
	t.Cleanup(server.Close)
	var out, errs strings.Builder
	p := &Program{Name: "curfew ctl", Environ: []string{urlVariable + "=" + server.URL}, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs}
	if status := p.Run([]string{"await_online_nodes", "2"}); status != 0 || errs.String() != "" {
		t.Errorf("got status %d, %q", status, errs.String())
	}
}
