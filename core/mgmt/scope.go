package mgmt

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
)

// scope says which nodes answer the requests for an endpoint. A broker alone is the only one.
type scope struct {
	name string
	// answer answers at the asked node. It may forward the request to other nodes, or ask them for their parts.
	answer func(c *request, e *endpoint) error
	// part readies a request of another node for this node's part of the answer; nil = there are no parts.
	part func(*request)
	// inVHost means that the vhost has to live at the node that answers.
	inVHost bool
}

var (
	// here: the asked node answers for itself.
	here = scope{name: "the node that is asked", answer: answerHere}
	// copied: the asked node answers from its copy of the registry.
	copied = scope{name: "any node", answer: answerCopied}
	// atOwner: the owner of the vhost that the path names.
	atOwner = atOwnerOf("vhost")
	// atRegistry: the owner of the registry.
	atRegistry = scope{name: "the registry's owner", answer: forwardToRegistrar}
	// atNode: the node that the path names.
	atNode = scope{name: "the node that the path names", answer: forwardToNode}
	// atFinder: the node that has the object that the path names. Other nodes do not know which that is.
	atFinder = scope{name: "the node that has it", answer: forwardToFinder}
	// atAll: each node for itself.
	atAll = scope{name: "all nodes", answer: forwardToAll}
)

// together is a scope whose answer needs the other nodes. Without any, this node's handler gives the whole answer.
func together(name string, part func(*request), answer func(c *request, e *endpoint) error) scope {
	return scope{name: name, part: part, answer: func(c *request, e *endpoint) error {
		if len(c.api.nodes.others()) == 0 {
			return e.do(c)
		}
		return answer(c, e)
	}}
}

// unchangedPart makes a node answer a request for its part as it answers any other request.
func unchangedPart(*request) {}

// atOwnerOf is the scope of paths with another label for the vhost.
func atOwnerOf(label string) scope {
	return scope{name: "the vhost's owner", inVHost: true, answer: func(c *request, e *endpoint) error { return forwardToOwner(c, e, c.vars[label]) }}
}

// inOne is the scope of requests that may name a vhost as a parameter: then its owner answers.
func inOne(all scope) scope {
	answer := all.answer
	all.answer = func(c *request, e *endpoint) error {
		name := c.query.raw.Get("vhost")
		if name == "" {
			return answer(c, e)
		}
		if _, here := c.api.Store.VHost(name); !here && c.api.nodes.knows(name) && !isMonitor(c.user) && !c.mayEnter(name) {
			return notAuthorised("User not authorised to access virtual host")
		}
		return forwardToOwner(c, e, name)
	}
	return all
}

// enterParameter makes the request one about the vhost that it names as a parameter, if it does.
func (c *request) enterParameter() error {
	if !c.query.raw.Has("vhost") {
		return nil
	}
	name := c.query.raw.Get("vhost")
	v, ok := c.api.Store.VHost(name)
	switch {
	case !ok && c.api.nodes.knows(name):
		return c.errUnowned(vhostText(name))
	case !ok:
		return errNotFound
	case !c.mayEnter(name):
		return notAuthorised("User not authorised to access virtual host")
	}
	c.vhost = v
	return nil
}

// answerHere lets this node answer.
func answerHere(c *request, e *endpoint) error { return e.do(c) }

// dispatch passes a request on to the nodes that answer for its endpoint.
func (c *request) dispatch(e *endpoint) error {
	switch {
	case !c.forwarded:
		return c.whileMoving(e)
	case c.part && e.at.part != nil:
		c.without = readWithout(c.r.Header)
		c.api.nodes.noteServed(c.w.Header(), c.without)
		e.at.part(c)
	}
	if name, named := c.vars["vhost"]; named && c.vhost == nil && e.at.inVHost {
		return c.errUnserved(name)
	}
	if name, named := c.vars["name"]; named && e.at.inVHost {
		if _, there := c.api.Store.VHost(name); !there { // it may have been created a moment ago
			c.freshen()
			c.awaitVHost(name)
		}
	}
	return e.do(c)
}

// errUnserved is the failure of a forwarded request about a vhost that this node does not serve. If this node has handed the vhost over, the
// asking node will know the new owner soon.
func (c *request) errUnserved(name string) error {
	owner, _ := c.api.nodes.placements.OwnerOf(name)
	if n, ok := c.api.nodes.memberOf(owner); ok && c.api.nodes.isSelf(&n) {
		return c.errUnowned(vhostText(name))
	}
	return errElsewhere
}

// staleHeader marks answers from a copy of the registry that may lack the latest changes.
const staleHeader = "Curfew-Stale"

// answerCopied answers from this node's copy of the registry.
func answerCopied(c *request, e *endpoint) error {
	if c.api.nodes.placements.Registrar() == 0 {
		c.w.Header().Set(staleHeader, "registry")
	}
	return e.do(c)
}

// errUnowned is the failure of a request about a vhost, or the registry, that has no owner now.
func (c *caller) errUnowned(what string) error {
	c.w.Header().Set("Retry-After", "1")
	return &failure{http.StatusServiceUnavailable, noOwner, what + " has no owner now: a majority of the nodes is needed, which then agree on one"}
}

const registryText = "the registry"

func vhostText(name string) string { return "vhost '" + name + "'" }

// forwardToOwner lets the owner of a vhost answer.
func forwardToOwner(c *request, e *endpoint, vhost string) error {
	v, there := c.api.Store.VHost(vhost)
	there = there && !v.Moved()
	owner, known := c.api.nodes.placements.OwnerOf(vhost)
	_, named := c.vars["vhost"]
	n, ok := c.api.nodes.memberOf(owner)
	if ok && c.api.nodes.isSelf(&n) && !there {
		v, there = c.awaitVHost(vhost)
	}
	switch {
	case there && named:
		c.vhost = v // it may have been created a moment ago
		return e.do(c)
	case !known && named:
		return errNotFound
	case there, !known:
		return e.do(c) // which returns "not found" for whatever is missing
	case ok && !c.api.nodes.isSelf(&n):
		return c.api.nodes.forward(c, n, e)
	}
	return c.errUnowned(vhostText(vhost))
}

// serveTime is how long a request waits for a vhost that was created a moment ago, or whose
// log this node is still reading.
const serveTime = 5 * time.Second

// awaitVHost returns a vhost that this node owns, once it serves it.
func (c *request) awaitVHost(name string) (*vhost.VHost, bool) {
	ctx, cancel := context.WithTimeout(c.r.Context(), serveTime)
	defer cancel()
	c.api.nodes.placements.AwaitVHost(ctx, name)
	return c.api.Store.VHost(name)
}

// forwardToRegistrar lets the owner of the registry answer, and then waits until this node knows the change.
func forwardToRegistrar(c *request, e *endpoint) error {
	n, ok := c.api.nodes.memberOf(c.api.nodes.placements.Registrar())
	switch {
	case !ok:
		return c.errUnowned(registryText)
	case c.api.nodes.isSelf(&n):
		return e.do(c)
	}
	answer, err := c.api.nodes.send(c, n, e)
	if err != nil {
		return err
	}
	if answer.StatusCode < http.StatusInternalServerError {
		c.freshen()
	}
	return c.api.nodes.passOn(c, answer, e)
}

// freshTime is how long a request waits for this node's copy of the registry.
const freshTime = 5 * time.Second

// freshen waits until this node has the latest changes of the registry. An answer without that is marked.
func (c *caller) freshen() {
	ctx, cancel := context.WithTimeout(c.r.Context(), freshTime)
	defer cancel()
	if c.api.nodes.placements.Fresh(ctx) != nil {
		c.w.Header().Set(staleHeader, "registry")
	}
}

// forwardToNode lets the node answer that the path names.
func forwardToNode(c *request, e *endpoint) error {
	n, ok := c.api.nodes.member(c.vars["node"])
	if !ok || c.api.nodes.isSelf(&n) {
		return e.do(c) // which refuses names that no node has
	}
	return c.api.nodes.forward(c, n, e)
}

// errUnreachable is the failure of a request that needs nodes which do not answer.
func (c *caller) errUnreachable(names []string, why string) error {
	c.w.Header().Set(unreachableHeader, joinNames(names))
	return &failure{http.StatusServiceUnavailable, "node_unreachable", "no answer from " + joinNames(names) + why}
}

// forwardToFinder asks this node, and then the others, until one has the object that the path names.
func forwardToFinder(c *request, e *endpoint) error {
	err := e.do(c)
	if f := c.failureOf(err); f == nil || f.status != http.StatusNotFound {
		return err
	}
	others, missing := c.api.nodes.askOthers(c, &question{})
	for i := range others {
		if others[i].status != http.StatusNotFound {
			others[i].copyTo(c.w)
			return nil
		}
	}
	if len(missing) > 0 {
		return c.errUnreachable(missing, ", which may have what the path names")
	}
	return err
}

// forwardToAll makes every node carry out the request. It fails if a node does not.
func forwardToAll(c *request, e *endpoint) error {
	own := capture(c, e)
	if own.status >= http.StatusBadRequest {
		own.copyTo(c.w)
		return nil
	}
	others, missing := c.api.nodes.askOthers(c, &question{})
	for i := range others {
		if others[i].status >= http.StatusBadRequest {
			others[i].copyTo(c.w)
			return nil
		}
	}
	if len(missing) > 0 {
		return c.errUnreachable(missing, "; the other nodes have done it")
	}
	own.copyTo(c.w)
	return nil
}

// noOwner is the code of a failure whose vhost, or the registry, has no owner or gets another one.
const noOwner = "no_owner"

var (
	// errMoved is the failure of a request whose vhost, or the registry, got another owner meanwhile.
	errMoved = &failure{http.StatusServiceUnavailable, noOwner, "what the request is about is getting another owner; whether it was done is not known"}
	// errElsewhere is the failure of a request whose vhost, or the registry, got another
	// owner before anything was done.
	errElsewhere = &failure{http.StatusServiceUnavailable, noOwner, "what the request is about has another owner now; nothing was done"}
)

// isOwnership reports whether an error says that this node does not own the shard, or has lost it.
func isOwnership(err error) bool {
	return errors.Is(err, wlog.ErrNotOwner) || errors.Is(err, wlog.ErrNoOwner) || errors.Is(err, wlog.ErrLost)
}
