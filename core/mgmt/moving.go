package mgmt

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/mgmt/definitions"
)

const (
	// moveTime is how long a request waits for the new owner of what it is about, and moveStep the time between two attempts.
	moveTime = 5 * time.Second
	moveStep = 100 * time.Millisecond
	// electTime is how long a change waits for an owner if no node is known to be it: a vhost, or the registry, that moves has none for some
	// hundredths of a second. Without a majority there is none for long.
	electTime = time.Second
)

// whileMoving repeats a request that was refused, with nothing done, because what it is about was moving to another owner. It does so until
// the new owner answers, for moveTime or electTime, or until the broker ends. A node hands over the registry, or a vhost, when another node
// starts, joins or stops. A request with a large body, or with one of unknown length, is not repeated.
func (c *request) whileMoving(e *endpoint) error {
	first, size := c.r, c.r.ContentLength
	if size < 0 || size > freeBody {
		return e.at.answer(c, e)
	}
	body := &keptBody{from: first.Body, size: size}
	var late <-chan time.Time
	for {
		if size > 0 {
			c.r = first.WithContext(first.Context()) // the HTTP server looks at the body of its own
			c.r.Body = &keptReader{of: body}
		}
		err := e.at.answer(c, e)
		if late == nil {
			late = c.patienceWith(err)
		}
		if late == nil || !c.isUndone(err) {
			return err
		}
		select {
		case <-time.After(moveStep):
		case <-late:
			return err
		case <-first.Context().Done():
			return err
		case <-c.api.nodes.viewers.Ended():
			return err
		}
		c.freeBody()
		c.r = first
		if err := c.again(e); err != nil {
			return err
		}
	}
}

// again readies a request for another attempt: with its whole time, and with the rights that its user has now.
func (c *request) again(e *endpoint) error {
	c.w.Header().Del("Retry-After") // of the attempt before
	c.takeTime(writeTimeout)
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Now().Add(writeTimeout)) // which would end the request, too
	if !c.renew() {
		return errLoginFailed
	}
	return c.authorise(e.need)
}

// patienceWith returns what ends the attempts of a request that has failed for the first time; nil = it is not repeated. Without an owner,
// requests to show something fail at once: pages ask again and again.
func (c *request) patienceWith(err error) <-chan time.Time {
	switch {
	case !c.isUndone(err):
		return nil
	case c.failureOf(err) == errElsewhere:
		return time.After(moveTime)
	case c.r.Method != http.MethodGet && c.r.Method != http.MethodHead:
		return time.After(electTime)
	}
	return nil
}

// isUndone reports whether a request failed with nothing done because what it is about has another owner now, or none.
func (c *request) isUndone(err error) bool {
	f := c.failureOf(err)
	return f != nil && f.code == noOwner && f != errMoved && !errors.Is(err, definitions.ErrPartly)
}

// keptBody is the body of a request that may be repeated. It is read when an attempt reads it: most rights are checked before. Any goroutine
// may use it, because an attempt that has failed may still be sending it to another node.
type keptBody struct {
	from io.Reader
	size int64

	once sync.Once // sets the fields below
	b    []byte
	err  error
}

func (k *keptBody) read() ([]byte, error) {
	k.once.Do(func() {
		k.b, k.err = io.ReadAll(io.LimitReader(k.from, k.size))
		if k.err == nil && int64(len(k.b)) < k.size {
			k.err = io.ErrUnexpectedEOF
		}
	})
	return k.b, k.err
}

// keptReader reads a kept body for one attempt.
type keptReader struct {
	of   *keptBody
	rest *bytes.Reader // nil before the first read
}

func (r *keptReader) Read(p []byte) (int, error) {
	if r.rest == nil {
		b, err := r.of.read()
		if err != nil {
			return 0, err
		}
		r.rest = bytes.NewReader(b)
	}
	return r.rest.Read(p)
}

// Close leaves the body open for the next attempt. The HTTP server closes it.
func (r *keptReader) Close() error { return nil }
