package mgmt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/backup"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/mgmt/streams"
	"github.com/curfewmq/curfew/core/replicas"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// backupPatience is how long the reader of a backup may take for a piece of it, 512 KiB.
const backupPatience = 30 * time.Second

// backups is the backup under way, and the last one that ended. Any goroutine may use it.
type backups struct {
	streams *streams.Streams

	mu      sync.Mutex // guards the fields below
	running *backupRun // nil = none is
	last    *backupRun // nil = there was none
}

// backupRun is a backup under way, or one that has ended.
type backupRun struct {
	user, from   string
	began, ended hook.Instant // ended is zero while it is being made
	bytes        int64        // written
	size         int64        // of all files
	err          error        // why it is not complete
}

// begin begins a backup, unless one is under way.
func (b *backups) begin(r *backupRun) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if o := b.running; o != nil {
		return &failure{http.StatusConflict, "conflict", fmt.Sprintf(
			"a backup is being made since %s, for user '%s' from %s", o.began.Time().UTC().Format(time.RFC3339), o.user, o.from,
		)}
	}
	b.running = r
	return nil
}

func (b *backups) end(at hook.Instant, err error) *backupRun {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.running
	r.ended, r.err = at, err
	b.running, b.last = nil, r
	return r
}

func (b *backups) written(bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running.bytes = bytes
}

func (b *backups) sized(bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running.size = bytes
}

func (r *backupRun) describe() any {
	if r == nil {
		return nil
	}
	o := object{
		{"user", r.user}, {"from", r.from}, {"began", jsonobj.Instant(r.began)}, {"bytes", r.bytes}, {"of", r.size},
	}
	if r.ended == 0 {
		return o
	}
	var problem any
	if r.err != nil {
		problem = r.err.Error()
	}
	return append(o, member{"ended", jsonobj.Instant(r.ended)}, member{"error", problem})
}

type backupHandlers struct {
	runs          backups
	node, version string
	policyFiles   string // see [Options]
	store         *store.Store
	clock         clock.Clock
	log           *slog.Logger
	replicas      Replicas
}

// describe says which backup is being made, and how the one before ended.
func (a *backupHandlers) describe(c *request) error {
	a.runs.mu.Lock()
	o := object{{"running", a.runs.running.describe()}, {"last", a.runs.last.describe()}}
	a.runs.mu.Unlock()
	o.Add("pinned_bytes", a.store.PinnedBytes())
	return c.reply(o)
}

// answer streams a backup, see the package's documentation.
func (a *backupHandlers) answer(c *request) error {
	if c.r.Method == http.MethodHead {
		c.w.Header().Set("Content-Type", backupType)
		return nil
	}
	if err := a.runs.begin(&backupRun{user: c.user.Name, from: c.r.RemoteAddr, began: a.clock()}); err != nil {
		return err
	}
	begun, err := a.stream(c)
	r := a.runs.end(a.clock(), err)
	log := a.log.With("user", r.user, "client", r.from, "bytes", r.bytes, "seconds", r.ended.Sub(r.began).Seconds())
	switch {
	case err == nil:
		log.Info("a backup was made")
	case begun:
		log.Warn("a backup is not complete", "error", err)
		panic(http.ErrAbortHandler) // so that no reader takes it for complete
	case errors.Is(err, wlog.ErrLost), errors.Is(err, wlog.ErrClosed):
		return &failure{http.StatusServiceUnavailable, "log_failed", fmt.Sprintf("no backup can be made: %v", err)}
	}
	return err
}

const backupType = "application/x-tar"

var (
	errNoDisk   = errors.New("the disk has too little space for what the backup keeps, and the broker needs it")
	errNoRight  = errors.New("its user may not make backups any more")
	errShutDown = errors.New("the broker is being shut down")
)

// stream makes a backup and writes it as the answer. begun reports whether the answer has begun.
func (a *backupHandlers) stream(c *request) (begun bool, err error) {
	ctx := c.r.Context()
	m := backup.Manifest{Version: a.version, Node: a.node, Time: a.clock().Time().UTC()}
	if m.Copy, err = a.copies(ctx); err != nil {
		return false, err
	}
	contents, err := backup.Online(m, a.policyFiles, a.store.Snapshot)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, contents.Close()) }()
	archived, _ := contents.Manifest.Bytes()
	a.runs.sized(archived)
	name := "curfew-" + contents.Manifest.Time.Format("20060102T150405Z") + ".tar"
	c.w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	w := a.runs.streams.Writer(c.w, backupPatience)
	defer w.HurryAtEnd()()
	w.Begin(backupType)
	began := time.Now()
	err = contents.Write(ctx, sender{w}, func(copied int64) error {
		a.runs.written(copied)
		pause(ctx, min(time.Since(began), maxRest))
		began = time.Now()
		return a.mayGoOn(ctx, c)
	})
	return true, err
}

// copyPatience is how long a node of a cluster may take to catch up with the confirmed entries before it makes a backup.
const copyPatience = 10 * time.Second

// copies describes the node's copies of the shards of a cluster, once they have all that was confirmed before; nil without a cluster.
func (a *backupHandlers) copies(ctx context.Context) (*replicas.Copy, error) {
	ctx, cancel := context.WithTimeout(ctx, copyPatience)
	defer cancel()
	all, err := a.replicas.Copies(ctx)
	if err != nil {
		return nil, &failure{http.StatusServiceUnavailable, "incomplete", fmt.Sprintf("this node cannot back the cluster up, another may: %v", err)}
	}
	return all, nil
}

// maxRest bounds the pause after each piece of a backup. The pause is as long as the piece took, so that half of the disk and of a
// processor is left for other work.
const maxRest = 5 * time.Millisecond

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// mayGoOn returns the reason why a backup has to end, nil if it may go on. While the disk is short of space, a backup must not keep files
// on it. Its user may be deleted or have lost the tag.
func (a *backupHandlers) mayGoOn(ctx context.Context, c *request) error {
	select {
	case <-a.runs.streams.Ended():
		return errShutDown
	default:
	}
	if a.store.Full() != nil && a.store.PinnedBytes() > 0 {
		return errNoDisk
	}
	if !c.renew() || !isAdministrator(c.user) {
		return errNoRight
	}
	return ctx.Err()
}

// sender is a [streams.Writer] as an io.Writer.
type sender struct{ *streams.Writer }

func (s sender) Write(b []byte) (int, error) {
	if err := s.Send(b); err != nil {
		return 0, err
	}
	return len(b), nil
}
