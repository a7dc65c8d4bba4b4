package mgmt

import (
	"maps"
	"strings"
	"testing"
)

func TestRouter(t *testing.T) {
	r := newRouter((&API{}).routes())
	for _, tt := range []struct {
		path  string
		route string // "" = none
		vars  string
	}{
		{"overview", "overview", ""},
		{"overview/", "overview", ""},
		{"overview//", "", ""},
		{"", "", ""},
		{"/overview", "", ""},
		{"queues/%2F/a%2Fb", "queues/{vhost}/{queue}", "vhost=/ queue=a/b"},
		{"queues/%2F/.", "queues/{vhost}/{queue}", "vhost=/ queue=."},
		{"queues/%2F/%2e%2e", "queues/{vhost}/{queue}", "vhost=/ queue=.."},
		{"queues/%2F/a+b%20c", "queues/{vhost}/{queue}", "vhost=/ queue=a+b c"},
		{"queues/%2F/q/get", "queues/{vhost}/{queue}/get", "vhost=/ queue=q"},
		{"queues/%2F/q/nothing", "", ""},
		{"queues/%zz", "", ""},
		{"users/bulk-delete", "users/bulk-delete", ""},
		{"users/bulk-delete/permissions", "users/{user}/permissions", "user=bulk-delete"},
		{"connections/username/x", "connections/username/{user}", "user=x"},
		{"connections/username/channels", "connections/username/{user}", "user=channels"},
		{"connections/a/channels", "connections/{connection}/channels", "connection=a"},
		{"vhosts/v", "vhosts/{name}", "name=v"},
		{"vhosts/v/permissions", "vhosts/{vhost}/permissions", "vhost=v"},
		{"bindings/v/e//q/q", "bindings/{vhost}/e/{source}/{kind}/{destination}", "vhost=v source= kind=q destination=q"},
		{"bindings/v/e/x/q/q/k", "bindings/{vhost}/e/{source}/{kind}/{destination}/{key...}", "vhost=v source=x kind=q destination=q key=k"},
		{"bindings/v/e/x/q/q/a%2Fb", "bindings/{vhost}/e/{source}/{kind}/{destination}/{key...}", "vhost=v source=x kind=q destination=q key=a/b"},
		{"bindings/v/e/x/q/q/a/b//c%252F", "bindings/{vhost}/e/{source}/{kind}/{destination}/{key...}", "vhost=v source=x kind=q destination=q key=a/b//c%2F"},
		{strings.Repeat("a/", 100), "", ""},
	} {
		rt, vars := r.find(tt.path)
		route := ""
		if rt != nil {
			route = rt.path
		}
		want := values{}
		for pair := range strings.SplitSeq(tt.vars, " ") {
			if name, v, ok := strings.Cut(pair, "="); ok {
				want[name] = v
			}
		}
		if tt.path == "queues/%2F/a+b%20c" {
			want["queue"] = "a+b c"
		}
		if route != tt.route || len(vars) != len(want) || route != "" && !maps.Equal(vars, want) {
			t.Errorf("%s: got %q %v, want %q %v", tt.path, route, vars, tt.route, want)
		}
	}
}

// Every path of the API leads to itself.
func TestRoutesAreDistinct(t *testing.T) {
	a := &API{}
	r := newRouter(a.routes())
	for _, rt := range a.routes() {
		path := strings.NewReplacer("{", "", "}", "").Replace(rt.path)
		if got, _ := r.find(path); got == nil || got.path != rt.path {
			t.Errorf("%s leads to %v", path, got)
		}
	}
}
