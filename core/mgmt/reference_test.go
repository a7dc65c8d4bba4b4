package mgmt

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

const (
	referenceBegins = "<!-- made from the routes: go test ./core/mgmt -run TestReference -rewrite -->\n"
	referenceEnds   = "<!-- end -->\n"
)

// The page's list of paths is that of the routes.
func TestReference(t *testing.T) {
	page, err := os.ReadFile("README.md")
	must(t, err)
	before, rest, begun := strings.Cut(string(page), referenceBegins)
	_, after, ended := strings.Cut(rest, referenceEnds)
	if !begun || !ended {
		t.Fatalf("README.md has no %q and %q", referenceBegins, referenceEnds)
	}
	want := before + referenceBegins + pathsOf(newRouter((&API{}).routes()).routes) + referenceEnds + after
	switch {
	case string(page) == want:
	case *rewrite:
		must(t, os.WriteFile("README.md", []byte(want), 0o600))
	default:
		t.Error("README.md does not list the paths as they are: go test ./core/mgmt -run TestReference -rewrite")
	}
}

func TestEveryEndpointIsDescribed(t *testing.T) {
	there := map[string]bool{}
	for _, r := range (&API{}).routes() {
		for _, e := range r.endpoints {
			name := e.method + " " + r.path
			there[name] = true
			if reference[name].does == "" {
				t.Errorf("reference.go does not say what %s does", name)
			}
		}
	}
	for name := range reference {
		if !there[name] {
			t.Errorf("reference.go describes %s, which there is not", name)
		}
	}
}

// pathsOf returns tables of endpoints, one for each first part of their paths.
func pathsOf(routes []route) string {
	var b strings.Builder
	last := ""
	slices.SortStableFunc(routes, func(x, y route) int { return strings.Compare(group(x.path), group(y.path)) })
	for _, r := range routes {
		if g := group(r.path); g != last {
			last = g
			fmt.Fprintf(&b, "\n### %s\n\n| request below `/api/` | who may | RabbitMQ | does | takes | gives |\n|---|---|---|---|---|---|\n", g)
		}
		for _, e := range r.endpoints {
			a := reference[e.method+" "+r.path]
			fmt.Fprintf(&b, "| `%s %s` | %s | %s | %s | %s | %s |\n", e.method, r.path, whoMay(e.need, r.path), fromWhom(a.from), a.does, a.takes, a.gives)
		}
	}
	return b.String() + "\n"
}

func group(path string) string {
	first, _, _ := strings.Cut(path, "/")
	return first
}

func whoMay(need access, path string) string {
	inside := ""
	if strings.Contains(path, "{vhost}") {
		inside = " in the vhost"
	}
	switch need {
	case stranger:
		return "anybody"
	case inVHost:
		return "any user" + inside
	case inVHostOrMonitor:
		return "any user in the vhost; monitoring"
	case monitor:
		return "monitoring"
	case policymaker:
		return "policymaker" + inside
	case administrator:
		return "administrator"
	}
	return "any user"
}

func fromWhom(o whose) string {
	switch o {
	case later:
		return "4.x"
	case ours:
		return "no"
	}
	return "yes"
}
