package store

import (
	"context"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/wlog"
)

// scarce is an engine whose other nodes have no space for what brings more while it is full.
type scarce struct {
	wlog.Cluster
	full atomic.Bool
}

type scarceLog struct {
	wlog.Log
	of *scarce
}

func (e *scarce) Open(ctx context.Context, shard uint32, fn func(at wlog.Index, entry []byte) error) (wlog.Log, error) {
	log, err := e.Cluster.Open(ctx, shard, fn)
	return &scarceLog{log, e}, err
}

// Resume implements [wlog.Standby].
func (e *scarce) Resume(ctx context.Context, shard uint32, after wlog.Index, fn func(at wlog.Index, entry []byte) error) (wlog.Log, error) {
	log, err := e.Cluster.Resume(ctx, shard, after, fn)
	return &scarceLog{log, e}, err
}

// Least implements [wlog.Log].
func (l *scarceLog) Least() wlog.Purpose {
	if l.of.full.Load() {
		return wlog.Moving
	}
	return l.Log.Least()
}
