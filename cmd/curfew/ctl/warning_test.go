package ctl

import (
	"encoding/json"
	"io"
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

// Tags without a meaning and empty passwords are accepted, as by RabbitMQ. Users who meant "administrator" by "admin" got no hint.
func TestUsersThatCannotDoMuch(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut:
			w.WriteHeader(http.StatusNoContent)
		case r.URL.Path == "/api/users/new":
			w.WriteHeader(http.StatusNotFound)
		default:
			_, _ = w.Write([]byte(`{"name":"anna","password_hash":"h","tags":[]}`))
		}
	}))
	t.Cleanup(server.Close)
	const known = " has no meaning here; these have one: administrator, monitoring, policymaker, management, impersonator\n"
	const empty = "cannot log in with a password until change_password sets one\n"
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"set_user_tags", "anna", "admin", "monitoring"}, "Warning: the tag 'admin'" + known},
		{[]string{"set_user_tags", "anna", "administrator,a,b"}, "Warning: the tag 'a'" + known + "Warning: the tag 'b'" + known},
		{[]string{"set_user_tags", "anna"}, ""},
		{[]string{"add_user", "new", ""}, "Warning: the password is empty: user 'new' " + empty},
		{[]string{"add_user", "new", "x"}, ""},
		{[]string{"change_password", "anna", ""}, "Warning: the password is empty: user 'anna' " + empty},
	} {
		for _, name := range []string{"curfew ctl", rabbitmqctl} {
			var errs strings.Builder
			p := &Program{Name: name, Environ: []string{urlVariable + "=" + server.URL}, Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: &errs}
			want := tt.want
			if name == rabbitmqctl {
				want = ""
			}
			if status := p.Run(tt.args); status != 0 || errs.String() != want {
				t.Errorf("%s %q: got status %d, %q, want %q", name, tt.args, status, errs.String(), want)
			}
		}
	}
}

// The last line of a drain names the places of messages that stay, and of those that are lost: it gave their number only.
func TestTheEndOfADrainNamesPlaces(t *testing.T) {
	place := func(name string) object {
		return object{"queue": json.RawMessage(`"` + name + `"`), "vhost": json.RawMessage(`"/"`), "ready": json.RawMessage("1")}
	}
	s := drainState{
		State: "stopping", Took: 1500, Kept: drainCount{5, 5, []object{place("a"), place("b"), place("c"), place("d")}}, Lost: drainCount{1, 1, []object{place("e")}},
	}
	const want = "Drained in 1.5s; kept: 5 messages in queue a in vhost /, queue b in vhost /, queue c in vhost /, and 2 more; " +
		"lost, because they were in memory only: 1 message in queue e in vhost /. The broker has stopped"
	if got := s.summary(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
