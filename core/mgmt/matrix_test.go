package mgmt

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/mgmt/definitions"
)

//go:embed testdata/routes.tags
var accessTable string

// accessTags are the columns of the table; "" is a user without any.
var accessTags = []string{"", tagManagement, tagPolicymaker, tagMonitoring, tagAdministrator}

// accessRow says which users may use an endpoint.
type accessRow struct {
	method, path string
	may          []string // by tag: +, v or -
}

func (r *accessRow) String() string { return r.method + " " + r.path }

// permits reports whether users with the tag of a column may.
func (r *accessRow) permits(column int, inVHost bool) bool {
	return r.may[column] == "+" || r.may[column] == "v" && inVHost
}

func accessRows(t *testing.T) (rows []accessRow) {
	t.Helper()
	for line := range strings.Lines(accessTable) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		if len(words) != 2+len(accessTags) {
			t.Fatalf("%q: %d words", line, len(words))
		}
		rows = append(rows, accessRow{method: words[0], path: words[1], may: words[2:]})
	}
	return rows
}

// newGates returns an API that checks a request's rights and then does nothing.
func newGates(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, unhurried, func(o *Options) { o.GuestLoopbackOnly = true })
	_, err := r.api.Store.AddVHost("v", r.api.Store.VHosts()[0].Metadata())
	must(t, err)
	for _, tag := range accessTags {
		for _, in := range []bool{true, false} {
			a := auth.Account{Name: accessUser(tag, in)}
			if tag != "" {
				a.Tags = []string{tag}
			}
			a.Password, err = r.api.users().Hash(a.Name)
			must(t, err)
			_, err = r.api.users().Set(a)
			must(t, err)
			if in {
				_, err = r.api.users().SetPermissions(definitions.AllPermissions(a.Name, "v"))
				must(t, err)
			}
		}
	}
	routes := r.api.routes()
	for i := range routes {
		for k := range routes[i].endpoints {
			e := &routes[i].endpoints[k]
			e.at, e.check, e.do = here, nil, func(c *request) error { return c.done(nil) }
		}
	}
	r.api.router = newRouter(routes)
	return r
}

func accessUser(tag string, inVHost bool) string { return fmt.Sprintf("u-%s-%v", tag, inVHost) }

// somewhere is a path that a pattern stands for.
func somewhere(pattern string) string {
	return root + strings.NewReplacer("{vhost}", "v", "{", "", "}", "").Replace(pattern)
}

// A policymaker could set the limits of a vhost and the name of the cluster by forgotten paths, because the rights for each path were
// tested one by one.
func TestAccess(t *testing.T) {
	r, rows := newGates(t), accessRows(t)
	listed := map[string]bool{}
	for _, row := range rows {
		listed[row.String()] = true
		for column, tag := range accessTags {
			for _, in := range []bool{true, false} {
				name, want := accessUser(tag, in), 401
				if row.permits(column, in) {
					want = 204
				}
				if w := r.serve(r.request(name+":"+name, row.method, somewhere(row.path), "")); w.Code != want {
					t.Errorf("%s with the tag %q, permissions in the vhost %v: got %d %s, want %d", row.String(), tag, in, w.Code, w.Body, want)
				}
			}
		}
	}
	for _, rt := range r.api.routes() {
		for _, e := range rt.endpoints {
			if !listed[e.method+" "+rt.path] {
				t.Errorf("testdata/routes.tags lacks %s %s", e.method, rt.path)
			}
		}
	}
}

// Paths that mean the same need the same.
func TestAccessByOtherSpellings(t *testing.T) {
	r := newGates(t)
	policymaker := accessUser(tagPolicymaker, true) + ":" + accessUser(tagPolicymaker, true)
	for _, path := range []string{
		"/api/parameters/vhost-limits/v/limits/", "/api/parameters/vhost%2dlimits/v/limits", "/api/parameters/%76host-limits/%76/limits",
		"/api/global-parameters/cluster%5Fname", "/api/global-parameters/cluster_name/", "/api/global-parameters/%63luster_name",
	} {
		for _, method := range []string{"PUT", "DELETE"} {
			if w := r.serve(r.request(policymaker, method, path, "{}")); w.Code != 401 {
				t.Errorf("%s %s: got %d, want 401", method, path, w.Code)
			}
		}
	}
}

// For every request and origin: guest is let in from this machine, other users from anywhere, pages of other sites never.
func TestAccessFromAnywhere(t *testing.T) {
	r, rows := newGates(t), accessRows(t)
	admin := accessUser(tagAdministrator, true)
	for _, row := range rows {
		for i := range whences {
			w := &whences[i]
			for user, refused := range map[string]bool{
				guest: !w.here, admin + ":" + admin: false, "-": true, admin + ":": true, ":": true,
			} {
				want := 204
				switch {
				case w.forbidden:
					want = 403
				case refused && row.may[0] != "+": // the path is for clients without a login
					want = 401
				}
				q := r.request(user, row.method, somewhere(row.path), "")
				w.put(q)
				if got := r.serve(q); got.Code != want {
					t.Errorf("%s as %s from %s: got %d %s, want %d", row.String(), user, w.name, got.Code, got.Body, want)
				}
			}
		}
	}
}
