package mgmt

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// route is a path of the API and its endpoints. Parts of the path in braces are labels that stand for any part, as "{vhost}"
// does for a vhost. A last label that ends in "..." stands for one or more parts, with the slashes between them.
type route struct {
	path      string
	endpoints []endpoint
}

// endpoint is one method on a path.
type endpoint struct {
	method  string
	at      scope // the nodes of a cluster that answer
	need    access
	do      handler
	check   handler       // refuses requests that are wrong, before this node asks another one; nil = there is nothing to check
	reads   bool          // the handler reads the parameters of lists itself
	streams bool          // the answer goes on for as long as its reader likes
	most    time.Duration // how long the answer may take to begin; 0 = the usual time
}

func get(at scope, need access, do handler) endpoint {
	return endpoint{method: http.MethodGet, at: at, need: need, do: do}
}

func put(at scope, need access, do handler) endpoint {
	return endpoint{method: http.MethodPut, at: at, need: need, do: do}
}

func post(at scope, need access, do handler) endpoint {
	return endpoint{method: http.MethodPost, at: at, need: need, do: do}
}

func patch(at scope, need access, do handler) endpoint {
	return endpoint{method: http.MethodPatch, at: at, need: need, do: do}
}

func remove(at scope, need access, do handler) endpoint {
	return endpoint{method: http.MethodDelete, at: at, need: need, do: do}
}

// checking is an endpoint whose requests are checked before any other node is asked.
func checking(check handler, e endpoint) endpoint {
	e.check = check
	return e
}

// reading is an endpoint whose handler reads the parameters of lists itself, and names their ranges.
func reading(e endpoint) endpoint {
	e.reads = true
	return e
}

// streaming is an endpoint whose answer goes on for as long as its reader likes.
func streaming(e endpoint) endpoint {
	e.streams = true
	return e
}

// lasting is an endpoint whose answer may take this long to begin.
func lasting(most time.Duration, e endpoint) endpoint {
	e.most = most
	return e
}

// router finds the route of a path.
type router struct {
	routes []route
	parts  [][]string // of their paths
}

// newRouter returns a router, which sorts routes so that names come before labels.
func newRouter(routes []route) *router {
	split := func(path string) []string { return strings.Split(path, "/") }
	slices.SortFunc(routes, func(a, b route) int {
		return slices.CompareFunc(split(a.path), split(b.path), func(x, y string) int {
			return cmp.Or(cmp.Compare(strings.Index(x, "{"), strings.Index(y, "{")), cmp.Compare(x, y))
		})
	})
	r := &router{routes: routes}
	for _, rt := range routes {
		r.parts = append(r.parts, split(rt.path))
	}
	return r
}

// values are the parts of a path that labels stand for, by label.
type values map[string]string

// find returns the route for the escaped path below the API's root; nil if there is none. It prefers names to labels.
func (r *router) find(escaped string) (*route, values) {
	parts := strings.Split(escaped, "/")
	for i, p := range parts {
		var err error
		if parts[i], err = url.PathUnescape(p); err != nil {
			return nil, nil
		}
	}
	for i := range r.routes {
		if vs, ok := match(r.parts[i], parts); ok {
			return &r.routes[i], vs
		}
	}
	return nil, nil
}

// match returns the parts of a path that the labels of a route stand for; ok is false if it is another route's.
//
// A slash at the end means nothing, except in a label of several parts: the routing keys "a" and "a/" are two.
func match(route, path []string) (vs values, ok bool) {
	last := len(route) - 1
	switch end := len(path) - 1; {
	case strings.HasSuffix(route[last], "...}") && end > last:
		path = append(slices.Clone(path[:last]), strings.Join(path[last:], "/"))
	case end > 0 && path[end] == "":
		path = path[:end]
	}
	if len(route) != len(path) {
		return nil, false
	}
	for i, part := range route {
		if !strings.HasPrefix(part, "{") && part != path[i] {
			return nil, false
		}
	}
	vs = values{}
	for i, part := range route {
		if strings.HasPrefix(part, "{") {
			vs[strings.Trim(part, "{.}")] = path[i]
		}
	}
	return vs, true
}

// endpoint returns the endpoint for a method; nil if there is none. HEAD counts as GET; the HTTP server leaves the body out.
func (r *route) endpoint(method string) *endpoint {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	i := slices.IndexFunc(r.endpoints, func(e endpoint) bool { return e.method == method })
	if i < 0 {
		return nil
	}
	return &r.endpoints[i]
}

func (r *route) allow() string {
	var methods []string
	for _, e := range r.endpoints {
		if e.method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
		methods = append(methods, e.method)
	}
	return strings.Join(append(methods, http.MethodOptions), ", ")
}

// pathInQuery is a path that has another path in its query: path?of=queues/%252F/./contents. Browsers, curl and many proxies resolve the
// segments "." and ".." in a path, also percent-encoded ones, but leave a query as it is. Without pathInQuery, a request to purge the queue
// "." would arrive as one to delete the queue "contents".
const pathInQuery = root + "path"

// atPathOf returns the request for the path that its query names, with the rest of the query.
func atPathOf(r *http.Request) (*http.Request, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	of := strings.TrimPrefix(query.Get("of"), "/")
	if err != nil || of == "" {
		return r, badRequest("of is missing: the path below %s that is meant, with escaped names, as in of=queues/%%252F/./contents", root)
	}
	decoded, err := url.PathUnescape(of)
	if err != nil || strings.ContainsAny(of, "?#") {
		return r, badRequest("of is not a path with escaped names, such as queues/%%252F/./contents")
	}
	query.Del("of")
	u := *r.URL
	u.Path, u.RawPath, u.RawQuery = root+decoded, root+of, query.Encode()
	if u.EscapedPath() != u.RawPath || u.RawPath == pathInQuery { // a character that has to be escaped is not
		return r, badRequest("of is not a path with escaped names, such as queues/%%252F/./contents")
	}
	r = r.WithContext(r.Context())
	r.URL = &u
	return r, nil
}
