package session

import (
	"context"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/auth"
)

// barrier shares calls of Options.Fresh: one call runs at a time, and all callers that asked before it began get its result. This way
// failing logins cannot flood the registry. Any goroutine may use it.
type barrier struct {
	turn  chan struct{} // capacity 1: has a value during a call, which guards the fields below
	begun atomic.Uint64 // calls; written during a call
	last  uint64        // number of the call that returned err
	err   error
}

// wait returns after a call of fresh that began after wait did, with the error of that call.
func (b *barrier) wait(ctx context.Context, fresh func(context.Context) error) error {
	before := b.begun.Load()
	select {
	case b.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-b.turn }()
	if b.last > before {
		return b.err
	}
	n := b.begun.Add(1)
	err := fresh(ctx)
	if err == nil || ctx.Err() == nil { // otherwise only this caller gave up, and its result is not shared
		b.last, b.err = n, err
	}
	return err
}

// Refresh waits until the node knows everything that is in the registry now. Without a registry it always does.
func (s *Server) Refresh(ctx context.Context) error {
	if s.Fresh == nil {
		return nil
	}
	return s.barrier.wait(ctx, s.Fresh)
}

// loginFunc checks credentials.
type loginFunc func(context.Context, auth.Origin) (auth.User, error)

// orAgain returns a check that is repeated if it fails while the node's view of the users may be outdated. The registry is asked only after
// a refusal of checked credentials, which limits it like the checks themselves.
func (s *Server) orAgain(check loginFunc) loginFunc {
	if s.Fresh == nil {
		return check
	}
	return func(ctx context.Context, from auth.Origin) (auth.User, error) {
		version := s.Users.Version()
		u, err := check(ctx, from)
		if !auth.WasChecked(err) || s.Refresh(ctx) != nil || s.Users.Version() == version {
			return u, err
		}
		return check(ctx, from)
	}
}
