package mgmt

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// route is a path of the API and its endpoints. Parts of the path in braces are labels that stand for any part, as "{vhost}"
// does for a vhost.
type route struct {
	path      string
	endpoints []endpoint
}

// endpoint is one method on a path.
type endpoint struct {
	method string
	need   access
	do     handler
}

func get(need access, do handler) endpoint    { return endpoint{http.MethodGet, need, do} }
func put(need access, do handler) endpoint    { return endpoint{http.MethodPut, need, do} }
func post(need access, do handler) endpoint   { return endpoint{http.MethodPost, need, do} }
func remove(need access, do handler) endpoint { return endpoint{http.MethodDelete, need, do} }

// router finds the route of a path.
type router struct{ root node }

// node holds the routes that begin with the same parts.
type node struct {
	names map[string]*node
	any   *node // for a label
	route *route
}

func newRouter(routes []route) *router {
	r := &router{}
	for i := range routes {
		n := &r.root
		for part := range strings.SplitSeq(routes[i].path, "/") {
			n = n.below(part)
		}
		n.route = &routes[i]
	}
	return r
}

// below returns the node for a part of a route's path, and makes one if there is none.
func (n *node) below(part string) *node {
	if _, ok := label(part); ok {
		if n.any == nil {
			n.any = &node{}
		}
		return n.any
	}
	if n.names == nil {
		n.names = map[string]*node{}
	}
	if n.names[part] == nil {
		n.names[part] = &node{}
	}
	return n.names[part]
}

// values are the parts of a path that labels stand for, by label.
type values map[string]string

// find returns the route for the escaped path below the API's root; nil if there is none. It tries a name before a label.
func (r *router) find(escaped string) (*route, values) {
	parts := strings.Split(strings.TrimSuffix(escaped, "/"), "/")
	if len(parts) > maxParts {
		return nil, nil
	}
	for i, p := range parts {
		var err error
		if parts[i], err = url.PathUnescape(p); err != nil {
			return nil, nil
		}
	}
	found := r.root.find(parts)
	if found == nil {
		return nil, nil
	}
	vs := values{}
	for i, part := range strings.Split(found.path, "/") {
		if name, ok := label(part); ok {
			vs[name] = parts[i]
		}
	}
	return found, vs
}

// label returns what stands in braces in a part of a route's path.
func label(part string) (name string, ok bool) {
	if !strings.HasPrefix(part, "{") {
		return "", false
	}
	return part[1 : len(part)-1], true
}

// maxParts limits the parts of a path. It is more than any route has.
const maxParts = 16

func (n *node) find(parts []string) *route {
	if len(parts) == 0 {
		return n.route
	}
	if named := n.names[parts[0]]; named != nil {
		if found := named.find(parts[1:]); found != nil {
			return found
		}
	}
	if n.any == nil {
		return nil
	}
	return n.any.find(parts[1:])
}

// endpoint returns the endpoint for a method; nil if there is none. HEAD is GET, whose body the server leaves out.
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

// allow returns the header Allow.
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
