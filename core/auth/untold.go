package auth

import (
	"sync"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// untold are refusals that were not worth a line in the log. How many passwords are looked at is bounded, and each that is wrong is
// told of. All other logins are as many as strangers like, and cost them nothing: only one a while is told of.
type untold struct {
	mu    sync.Mutex // guards what follows
	n     int        // since one was told of
	since hook.Instant
}

// tellAgain is how often at most it is told of logins whose password was not looked at.
const tellAgain = time.Second

// Tell reports whether a refusal is worth a line in the log, and how many like it were not since the last that was.
func (s *Store) Tell(r *Refused, now hook.Instant) (worth bool, left int) {
	if !r.Unseen {
		return true, 0
	}
	u := &s.untold
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.since != 0 && now.Sub(u.since) < tellAgain {
		u.n++
		return false, 0
	}
	left, u.n, u.since = u.n, 0, now
	return true, left
}
