package seg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/curfewmq/curfew/core/wlog"
)

// scanner reads the entries of segments, one segment after another. It belongs to one goroutine.
type scanner struct {
	segmentReader
	shard  uint32
	chain  wlog.Chain
	header wlog.Header // of the current entry
	// visit is called with every entry; body is valid during the call.
	visit func(g *segment, at wlog.Index, h *wlog.Header, body []byte) error
}

// ending is the end of a segment's entries.
type ending struct {
	at     int64 // where the next entry would begin
	proven int64 // everything before this offset was certainly durable
	closed bool  // no entry can follow in this segment
	reason error // why no entry begins at at, unless closed
	cut    bool  // an entry begins there, but is not complete
}

// broken is the reason for which bytes are not the log's next entry.
type broken struct {
	reason error
	cut    bool // the header is valid
}

func (b broken) Error() string { return b.reason.Error() }

func (b broken) Unwrap() error { return b.reason }

var (
	errBody = errors.New("the checksum of the entry's body does not match")
	errPad  = errors.New("the entry is not followed by zeros")
	errRest = errors.New("the file does not end with zeros")
	errVoid = errors.New("an entry of an earlier owner")
)

// segment visits all entries of g up to the first bytes that are not the next entry. The caller decides whether those are damage; certain
// damage is returned as a Damage. Any other error comes from visit, or from reading.
func (s *scanner) segment(ctx context.Context, g *segment) (ending, error) {
	s.reset(g)
	defer s.wait()
	end := ending{at: headerSize, proven: headerSize}
	for !end.closed {
		if err := ctx.Err(); err != nil {
			return end, err
		}
		err := s.step(&end)
		if err == nil {
			continue
		}
		if b, ok := errors.AsType[broken](err); ok {
			end.reason, end.cut = b.reason, b.cut
			return end, nil
		}
		return end, err
	}
	return end, nil
}

// step visits the entry at end.at and moves end behind it.
func (s *scanner) step(end *ending) error {
	if rest := s.g.size - end.at; rest < wlog.HeaderSize {
		err := s.zeros(end.at, int(rest))
		end.closed = err == nil
		return err
	}
	body, err := s.entry(end.at)
	if err != nil {
		return err
	}
	at, h := s.g.index(end.at), &s.header
	void, err := s.chain.Follow(at, h)
	if err != nil {
		return s.g.damage(end.at, err.Error())
	}
	if void {
		// Only the owner can append here. So an entry that would be void in a distributed engine is a remnant from before a loss of power.
		return broken{reason: errVoid}
	}
	if h.Synced {
		end.proven = end.at
	}
	if h.Kind == wlog.Data {
		s.g.last = at
	}
	end.at += wlog.EntrySize(h.Size)
	end.closed = h.Kind == wlog.Filler
	return s.visit(s.g, at, h, body)
}

// entry reads and checks the entry at off, and returns its body. If there is none, the error is broken.
func (s *scanner) entry(off int64) ([]byte, error) {
	b, err := s.at(off, wlog.HeaderSize)
	if err != nil {
		return nil, err
	}
	h := &s.header
	if *h, err = wlog.ParseHeader(b, s.g.index(off), s.g.salt); err != nil {
		return nil, s.unreadable(off, err)
	}
	size := wlog.EntrySize(h.Size)
	if h.Shard != s.shard || off+size > s.g.size || h.Kind == wlog.Filler && off+size != s.g.size {
		return nil, s.g.damage(off, fmt.Sprintf("%v entry of shard %d with %d bytes does not belong here", h.Kind, h.Shard, h.Size))
	}
	if b, err = s.at(off, int(size)); err != nil {
		return nil, err
	}
	body, pad := b[wlog.HeaderSize:wlog.HeaderSize+h.Size], b[wlog.HeaderSize+h.Size:size]
	if !h.Holds(body) {
		return nil, broken{reason: errBody, cut: true}
	}
	if !isZero(pad) {
		return nil, broken{reason: errPad, cut: true}
	}
	return body, nil
}

// unreadable returns the error for an unreadable header. The log may end there, if the header was not written, or not completely.
func (s *scanner) unreadable(off int64, err error) error {
	switch {
	case errors.Is(err, wlog.ErrNoEntry):
		return broken{reason: err}
	case errors.Is(err, wlog.ErrNewer):
		return fmt.Errorf("%s at byte %d: %w", s.g.name, off, err)
	default:
		return s.g.damage(off, strings.TrimPrefix(err.Error(), wlog.ErrDamaged.Error()+": "))
	}
}

// zeros checks that the n bytes at off, which end the file, are zeros.
func (s *scanner) zeros(off int64, n int) error {
	b, err := s.at(off, n)
	if err != nil {
		return err
	}
	if !isZero(b[:n]) {
		return broken{reason: errRest}
	}
	return nil
}

func isZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// proof looks for proof, at off or behind it, that everything before off was durable: the header of an entry of this segment with Synced
// set.
func (s *scanner) proof(ctx context.Context, g *segment, off int64) (at int64, found bool, err error) {
	s.reset(g)
	defer s.wait()
	off = roundUp(off, wlog.Align)
	for off+wlog.HeaderSize <= g.size {
		if err := ctx.Err(); err != nil {
			return 0, false, err
		}
		b, err := s.at(off, wlog.HeaderSize)
		if err != nil {
			return 0, false, err
		}
		n, found := proofIn(b, g, off)
		off += int64(n)
		if found {
			return off, true, nil
		}
	}
	return 0, false, nil
}

// proofIn looks for proof in b, which begins off bytes into the file and is long enough for a header. It returns the offset of the proof in
// b, or the offset up to which b has none.
func proofIn(b []byte, g *segment, off int64) (n int, found bool) {
	for len(b)-n >= wlog.HeaderSize {
		i := bytes.Index(b[n:], []byte(wlog.Magic))
		if i < 0 {
			return (len(b) - len(wlog.Magic)) / wlog.Align * wlog.Align, false
		}
		if n += i; n%wlog.Align != 0 {
			n += wlog.Align - n%wlog.Align
			continue
		}
		h, err := wlog.ParseHeader(b[n:], g.index(off+int64(n)), g.salt)
		if err == nil && h.Synced {
			return n, true
		}
		if len(b)-n < wlog.HeaderSize {
			break
		}
		n += wlog.Align
	}
	return n, false
}
