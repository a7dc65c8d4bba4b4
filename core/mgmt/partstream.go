package mgmt

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"
)

// partBody is the body of another node's answer while it is read. A read that takes too long ends it, because the node hangs.
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

// capture returns this node's own answer, which is short.
func capture(c *request, e *endpoint) *part {
	own, w := *c, &recorder{header: http.Header{}, status: http.StatusOK}
	own.w = w
	if err := e.do(&own); err != nil {
		own.refuse(err)
	}
	return &part{status: w.status, header: w.header, body: w.body}
}

// recorder keeps an answer.
type recorder struct {
	header http.Header
	status int
	body   []byte
}

// Header implements [http.ResponseWriter].
func (w *recorder) Header() http.Header { return w.header }

// WriteHeader implements [http.ResponseWriter].
func (w *recorder) WriteHeader(status int) { w.status = status }

// Write implements [http.ResponseWriter].
func (w *recorder) Write(b []byte) (int, error) {
	w.body = append(w.body, b...)
	return len(b), nil
}
