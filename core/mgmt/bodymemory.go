package mgmt

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
)

const (
	// maxBodies limits the memory for the bodies of all requests, read and decoded, and maxBodiesOfUser the memory for the bodies of one
	// user.
	maxBodies       = 512 << 20
	maxBodiesOfUser = maxBodies / 2
	// freeBody is the size up to which a body needs no place, in bytes: most are smaller.
	freeBody = 64 << 10
	// perByte is the memory for a byte of a body: the text, the decoded value, and the definitions made of it.
	perByte = 3
	// bodyWait is how long a request waits for memory that other bodies take.
	bodyWait = 10 * time.Second
	// maxDefinitionValues limits the values of a file of definitions: a queue has about ten.
	maxDefinitionValues = 4 << 20
)

// bodyMemory bounds the memory of the bodies of all requests. Any goroutine may use it.
type bodyMemory struct {
	most, ofUser int64
	wait         time.Duration

	mu    sync.Mutex // guards the fields below
	taken int64
	of    map[string]int64 // by users
	freed chan struct{}    // closed when memory is freed
}

func newBodyMemory() *bodyMemory {
	return &bodyMemory{most: maxBodies, ofUser: maxBodiesOfUser, wait: bodyWait, of: map[string]int64{}, freed: make(chan struct{})}
}

// try takes memory for a body of a user. If there is not enough, it returns a channel that is closed when some is freed, and the failure
// for a client that has waited too long.
func (m *bodyMemory) try(user string, n int64) (freed chan struct{}, why *failure) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.of[user]+n > m.ofUser:
		return m.freed, &failure{http.StatusTooManyRequests, "too_many_bodies", fmt.Sprintf(
			"the bodies of the requests of user '%s' take more than %d MiB of memory: send fewer at a time, or smaller ones", user, m.ofUser>>20)}
	case m.taken+n > m.most:
		return m.freed, &failure{http.StatusServiceUnavailable, "busy", fmt.Sprintf("the bodies of all requests take more than %d MiB of memory: ask again", m.most>>20)}
	}
	m.taken += n
	m.of[user] += n
	return nil, nil
}

// take takes memory for a body of a user, and waits until there is some.
func (m *bodyMemory) take(ctx context.Context, user string, n int64) error {
	freed, why := m.try(user, n)
	if why == nil {
		return nil
	}
	late := time.NewTimer(m.wait)
	defer late.Stop()
	for why != nil {
		select {
		case <-freed:
		case <-late.C:
			return why
		case <-ctx.Done():
			return why
		}
		freed, why = m.try(user, n)
	}
	return nil
}

// free gives memory back.
func (m *bodyMemory) free(user string, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.taken -= n
	if m.of[user] -= n; m.of[user] == 0 {
		delete(m.of, user)
	}
	close(m.freed)
	m.freed = make(chan struct{})
}

// bodyPlace is the share of one request's body in the memory.
type bodyPlace struct {
	user  string
	needs int64
	taken int64
}

// reserve takes memory for n bytes more of the request's body. A body takes at most as much as one user may have, even if it
// needs more: then it is the user's only one.
func (c *request) reserve(n int64) error {
	p := &c.place
	p.needs += n
	missing := min(p.needs-freeBody*perByte, c.api.bodies.ofUser) - p.taken
	if missing <= 0 {
		return nil
	}
	if p.taken == 0 {
		p.user = c.user.Name
	}
	if err := c.api.bodies.take(c.r.Context(), p.user, missing); err != nil {
		c.w.Header().Set("Retry-After", "1")
		return err
	}
	p.taken += missing
	return nil
}

// freeBody gives back the memory for the request's body.
func (c *request) freeBody() {
	if c.place.taken > 0 {
		c.api.bodies.free(c.place.user, c.place.taken)
		c.place = bodyPlace{}
	}
}

// limits returns the limits for the JSON of the request's body.
func (c *request) limits(values int) jsonobj.Limits {
	return jsonobj.Limits{Values: values, Memory: c.reserve}
}

// reservedBody is a body that takes memory as it is read.
type reservedBody struct {
	io.ReadCloser
	request *request
	ahead   int64 // bytes for which memory is taken already
}

// reserving returns a body that takes memory as it is read.
func (c *request) reserving(body io.ReadCloser) io.ReadCloser {
	return &reservedBody{body, c, freeBody}
}

// bodyStep is the number of bytes for which memory is taken at a time.
const bodyStep = 1 << 20

func (b *reservedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.ahead -= int64(n); b.ahead >= 0 || n == 0 {
		return n, err
	}
	b.ahead += bodyStep
	if refused := b.request.reserve(bodyStep * perByte); refused != nil {
		return 0, refused
	}
	return n, err
}
