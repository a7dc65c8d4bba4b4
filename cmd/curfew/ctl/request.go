package ctl

import (
	"context"
	"net/http"
	"strconv"
	"strings"
)

// request is a command that makes one call of the API and prints nothing else if the call succeeds. In its texts {vhost} stands for
// the virtual host, and {1}, {2} and so on for operands.
type request struct {
	banner  string
	method  string
	path    string   // below /api
	missing *failure // the error for the API's "not found"; nil = the API's text
}

func (r request) run(ctx context.Context, c *call) error {
	c.banner("%s", c.fill(r.banner))
	if err := c.api.call(ctx, r.method, c.path(r.path), nil, nil); err != nil {
		return c.missing(err, r.missing)
	}
	return c.done()
}

func deletion(banner, path string, missing *failure) func(ctx context.Context, c *call) error {
	return request{banner, http.MethodDelete, path, missing}.run
}

// listing is a command that prints a list from the API with known columns. Its texts have the placeholders of [request].
type listing struct {
	banner  string
	path    string
	missing *failure
	columns []column
}

func (l listing) run(ctx context.Context, c *call) error {
	c.banner("%s", c.fill(l.banner))
	var all []object
	if err := c.api.get(ctx, c.path(l.path), &all); err != nil {
		return c.missing(err, l.missing)
	}
	return c.showAll(all, l.columns...)
}

// columnList is a command that prints the columns that its operands name. The list of a virtual host that does not exist is empty.
func columnList(banner, path string) func(ctx context.Context, c *call) error {
	return func(ctx context.Context, c *call) error {
		c.banner("%s", c.fill(banner))
		return c.list(ctx, path, nil)
	}
}

// fill replaces the placeholders of a text.
func (c *call) fill(text string) string {
	return c.replacer(func(s string) string { return s }).Replace(text)
}

// path returns the path of a resource. The values of its placeholders may contain any characters.
func (c *call) path(text string) string { return "/api/" + c.replacer(segment).Replace(text) }

func (c *call) replacer(write func(string) string) *strings.Replacer {
	pairs := []string{"{vhost}", write(c.vhost())}
	for i, o := range c.operands {
		pairs = append(pairs, "{"+strconv.Itoa(i+1)+"}", write(o))
	}
	return strings.NewReplacer(pairs...)
}

// missing replaces the API's "not found" by f, because the API does not say what is missing.
func (c *call) missing(err error, f *failure) error {
	if f == nil {
		return err
	}
	return instead(err, &failure{f.status, c.fill(f.text)})
}

// Errors that replace the API's "not found".
var (
	noVHost     = &failure{dataError, "Virtual host '{vhost}' does not exist"}
	noParameter = &failure{unavailable, "Error:\nParameter does not exist"}
)

// put sends body to path, and ends the command if the request succeeds.
func (c *call) put(ctx context.Context, path string, body any) error {
	return c.doneUnless(c.api.put(ctx, c.path(path), body))
}
