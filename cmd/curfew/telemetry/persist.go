package telemetry

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// tryAgain is the time between two attempts to reach a collector.
const tryAgain = 2 * time.Second

// mostCuts is how often the same export is sent again after its connection ended without an answer. A collector that ends the
// connection because of what it was sent would otherwise get that for ever.
const mostCuts = 3

// persist exports until the collector is reached, or ctx ends. failed is called after each failed attempt. OpenTelemetry's
// clients give up at once if nothing listens over HTTP, and after ten seconds over gRPC.
//
// A connection that ends before the answer leaves open whether the collector has got the request, for example one that the collector
// closed while it was idle, just before. OTLP asks clients to send again then: a span that arrives twice has the same id.
func persist(ctx context.Context, export func() error, failed func(error)) error {
	var why error // why it was unreachable, which is more useful than that the time is over
	for cuts := 0; ; {
		err := export()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			err = cmp.Or(why, err)
		}
		failed(err)
		switch {
		case ctx.Err() != nil:
			return err
		case unreachable(err):
		case wasCut(err) && cuts < mostCuts:
			cuts++
		default:
			return err
		}
		why = err
		select {
		case <-time.After(tryAgain):
		case <-ctx.Done():
			return err
		}
	}
}

// unreachable reports whether the collector has not seen the request, or is not ready for any.
func unreachable(err error) bool {
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return true
	}
	s, ok := status.FromError(err)
	return ok && s.Code() == codes.Unavailable
}

// wasCut reports whether the connection ended before the collector's answer.
func wasCut(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
