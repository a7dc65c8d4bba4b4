package telemetry

import (
	"cmp"
	"context"
	"errors"
	"net"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// tryAgain is the time between two attempts to reach a collector.
const tryAgain = 2 * time.Second

// persist exports until the collector is reached, or ctx ends. failed is called after each failed attempt. OpenTelemetry's
// clients give up at once if nothing listens over HTTP, and after ten seconds over gRPC.
func persist(ctx context.Context, export func() error, failed func(error)) error {
	var why error // why it was unreachable, which is more useful than that the time is over
	for {
		err := export()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			err = cmp.Or(why, err)
		}
		failed(err)
		if ctx.Err() != nil || !unreachable(err) {
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
