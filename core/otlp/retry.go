package otlp

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// tryAgain is the time between two attempts to reach a collector.
const tryAgain = 2 * time.Second

// mostCuts is how often the same export is sent again after its connection ended without an
// answer. Without a limit, a collector that ends the connection because of the export's
// content would get the export for ever.
const mostCuts = 3

// retry exports until the collector answers, or ctx ends. It calls failed after each failed
// attempt. OpenTelemetry's clients give up at once if no process listens over HTTP, and
// after ten seconds over gRPC.
//
// If a connection ends before the answer, the collector may have the request or not; for
// example, it may have closed an idle connection just before. OTLP asks clients to send
// again then: a span that arrives twice has the same id.
func retry(ctx context.Context, export func() error, failed func(error)) error {
	var why error // the collector was unreachable; more useful than the end of ctx
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

// unreachable reports whether the collector has not read the request, or is not ready for any.
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

// maxError bounds the bytes of an error in the log.
const maxError = 500

// Brief returns an error's text for the log. Clients quote the collector's answer, or that
// of another server at its address, which may have megabytes.
func Brief(err error) string {
	text := err.Error()
	if len(text) <= maxError {
		return text
	}
	return strings.ToValidUTF8(text[:maxError], "") + "…"
}
