package mgmt

import (
	"bytes"
	"context"
	"io"
	"iter"
	"net/http"
	"time"
)

// partBody is what another node answers while it is read. A read that takes too long ends it: the node hangs.
type partBody struct {
	from   io.ReadCloser
	cancel context.CancelFunc // ends the request
	late   *time.Timer        // calls cancel; runs during reads
	most   time.Duration      // how long a read may take
}

// Read implements [io.Reader].
func (b *partBody) Read(p []byte) (int, error) {
	b.late.Reset(b.most)
	defer b.late.Stop()
	return b.from.Read(p)
}

// Close implements [io.Closer].
func (b *partBody) Close() error {
	b.late.Stop()
	b.cancel()
	return b.from.Close()
}

// take reads the beginning of a part. The rest of a longer one can be read until the request ends.
func (p *part) take(from io.ReadCloser, hold *holding) (err error) {
	hold.add(from)
	if p.body, err = io.ReadAll(io.LimitReader(from, maxHeld)); err == nil && len(p.body) == maxHeld {
		p.rest = from
	}
	return err
}

// complete reads all of a part.
func (p *part) complete(ctx context.Context, hold *holding) error {
	if p.rest == nil {
		return nil
	}
	if err := hold.readWhole(ctx); err != nil {
		return err
	}
	rest, err := io.ReadAll(http.MaxBytesReader(nil, io.NopCloser(p.rest), maxPart-maxHeld))
	if err != nil {
		return err
	}
	p.body, p.rest = append(p.body, rest...), nil
	return nil
}

// reader reads the part from its beginning.
func (p *part) reader() io.Reader {
	if p.rest == nil {
		return bytes.NewReader(p.body)
	}
	return io.MultiReader(bytes.NewReader(p.body), p.rest)
}

// askSelf returns this node's own answer or, as one of its parts, the beginning of that: more of it is made when it is read.
func (c *request) askSelf(e *endpoint, q *question) (*part, error) {
	own := *c
	own.forwarded, own.part, own.holding = true, q.merged, nil
	own.r = c.r.Clone(c.r.Context())
	q.mark(own.r.Header, c.api.Node)
	w := &ownPart{header: http.Header{}}
	own.w = w
	w.next, w.stop = iter.Pull(func(yield func([]byte) bool) {
		w.yield = yield
		if err := own.dispatch(e); err != nil {
			own.refuse(err)
		}
	})
	p := &part{}
	p.node, _ = c.api.member(c.api.Node)
	err := p.take(w, c.hold())
	if err == nil && !q.long {
		err = p.complete(c.r.Context(), c.hold())
	}
	p.header = w.header
	if p.status = w.status; p.status == 0 {
		p.status = http.StatusOK
	}
	return p, err
}

// ownPart is an answer of this node that is made while it is read.
type ownPart struct {
	header http.Header
	status int
	yield  func([]byte) bool
	next   func() ([]byte, bool)
	stop   func()
	left   []byte // what was written and not read yet
}

// Header implements [http.ResponseWriter].
func (w *ownPart) Header() http.Header { return w.header }

// WriteHeader implements [http.ResponseWriter].
func (w *ownPart) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

// Write implements [http.ResponseWriter].
func (w *ownPart) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if len(b) > 0 && !w.yield(b) {
		return 0, io.ErrClosedPipe
	}
	return len(b), nil
}

// Read implements [io.Reader].
func (w *ownPart) Read(p []byte) (int, error) {
	for len(w.left) == 0 {
		b, ok := w.next()
		if !ok {
			return 0, io.EOF
		}
		w.left = b
	}
	n := copy(p, w.left)
	w.left = w.left[n:]
	return n, nil
}

// Close implements [io.Closer].
func (w *ownPart) Close() error {
	w.stop()
	return nil
}
