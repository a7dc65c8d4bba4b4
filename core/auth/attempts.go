package auth

import "sync/atomic"

// Attempts counts logins since the store was made.
type Attempts struct{ Succeeded, Failed uint64 }

// Attempts returns the logins with SASL, which is over AMQP, and those with a name and a password, which is over HTTP.
func (s *Store) Attempts() (sasl, basic Attempts) {
	return s.logins[bySASL].read(), s.logins[byName].read()
}

// The ways to log in.
const (
	bySASL = iota
	byName
	ways
)

// loginCounts is Attempts while it grows.
type loginCounts struct{ succeeded, failed atomic.Uint64 }

func (a *loginCounts) read() Attempts {
	return Attempts{Succeeded: a.succeeded.Load(), Failed: a.failed.Load()}
}

func (a *loginCounts) count(succeeded bool) {
	if succeeded {
		a.succeeded.Add(1)
		return
	}
	a.failed.Add(1)
}
