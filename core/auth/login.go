package auth

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Mechanisms lists the SASL mechanisms that [Store.Login] knows, as connection.start lists them.
const Mechanisms = "PLAIN AMQPLAIN"

// Refused is the error of a login whose credentials are not accepted. Its reason is for the log only.
type Refused struct {
	Mechanism string // "" = not by SASL
	User      string
	Reason    string
	// Retry is how long the client has to wait before the next login, after too many failures; 0 = it may try again at once.
	Retry time.Duration
	// Busy reports that too many logins wait for a check, or that this one waited too long.
	Busy bool
	// unchecked reports that the password was not checked: it was empty, or the login was early or Busy.
	unchecked bool
	// unknown reports that a verified certificate names no user, or a user that this node does not know.
	unknown bool
	// Unready reports that the node knows no users yet: it has not reached a majority of its cluster's nodes since it started.
	Unready bool
	// Elsewhere reports that guest tried to log in from another machine, which is refused with any password.
	Elsewhere bool
}

// Error returns the reason, for the log.
func (r *Refused) Error() string {
	if r.Mechanism == "" {
		return "login refused: " + r.Reason
	}
	return r.Mechanism + " login refused: " + r.Reason
}

// Reply returns the reply for clients with the capability authentication_failure_close.
func (r *Refused) Reply() *amqp.Error {
	if r.Busy {
		return amqp.Errorf(amqp.ReplyConnectionForced, "too many logins at a time, try again later")
	}
	if r.Unready {
		return amqp.Errorf(amqp.ReplyInternalError, "no user is known here yet: a majority of the cluster's nodes is needed")
	}
	return amqp.Errorf(amqp.ReplyAccessRefused, "Login was refused using authentication mechanism %s. For details see the broker logfile.", r.Mechanism)
}

// Login checks the response of a client's connection.start-ok. It may wait for its turn, until ctx is done. The error is a
// [*Refused], or an [*amqp.Error] for an unknown mechanism or a malformed response.
func (s *Store) Login(ctx context.Context, mechanism, response string, from Origin) (User, error) {
	name, password, err := credentials(mechanism, response)
	if err != nil {
		s.logins[bySASL].count(false)
		return User{}, err
	}
	u, refused := s.authenticate(ctx, name, password, from)
	s.logins[bySASL].count(refused == nil)
	if refused != nil {
		refused.Mechanism = mechanism
		return User{}, refused
	}
	return u, nil
}

// Authenticate checks a name and a password like Login. The error is a [*Refused].
func (s *Store) Authenticate(ctx context.Context, name, password string, from Origin) (User, error) {
	u, refused := s.authenticate(ctx, name, password, from)
	s.logins[byName].count(refused == nil)
	if refused != nil {
		return User{}, refused
	}
	return u, nil
}

// Waiting returns how many passwords wait to be checked.
func (s *Store) Waiting() int {
	g := s.verifier.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting
}

func (s *Store) authenticate(ctx context.Context, name, password string, from Origin) (User, *Refused) {
	name = shortened(name)
	if password == "" {
		r := refuse(name, "user '%s' attempted to log in with a blank password", name)
		r.unchecked = true
		return User{}, r
	}
	if r := s.unready(name); r != nil {
		return User{}, r
	}
	elsewhere := name == Guest && !from.Loopback
	l := login{name: name, from: from, barred: elsewhere}
	u := s.user(name)
	for checks := 1; ; checks++ {
		var h Hash // without a user no password is right
		if u != nil {
			h = u.Password
		}
		v := s.verifier.verify(ctx, l, &h, password)
		if v.is != right {
			r := v.refuse(name, &from)
			r.Elsewhere = elsewhere
			return User{}, r
		}
		now := s.user(name)
		switch {
		case now == nil, checks == maxChecks && now.generation != u.generation:
			return User{}, (&result{is: wrong}).refuse(name, &from) // the user did not exist in between
		case now.generation == u.generation && now.Password.equal(&u.Password):
			return now.loggedIn(), nil
		case checks == maxChecks:
			return now.loggedInWith(u.epoch), nil
		}
		u = now
	}
}

// maxChecks bounds how often a login checks a password while the user's hash keeps changing. A new hash has a new salt, so it may belong to
// the same password, and the login checks again. If the password was right each time, the login is accepted as of the last check, because
// it began before the change that followed.
const maxChecks = 3

// unready returns the refusal of every login while the store knows no users; nil = it knows them. Without this, clients would be told
// that their password is wrong, and the throttle would count them as having failed.
func (s *Store) unready(name string) *Refused {
	if s.options.Follows == nil || s.followed.Load() {
		return nil
	}
	r := refuse(name, "no user is known yet: no majority of the cluster's nodes was reached since this one started")
	r.Unready, r.unknown, r.unchecked = true, true, true
	return r
}

func (v *result) refuse(name string, from *Origin) *Refused {
	switch v.is {
	case early:
		r := refuse(name, "too many failed logins of user '%s' from %s, or of others from there", name, from.Host)
		r.Retry, r.unchecked = v.retry, true
		return r
	case busy:
		r := refuse(name, "too many logins at a time: that of user '%s' from %s waits no longer", name, from.Host)
		r.Busy, r.unchecked = true, true
		return r
	case barred:
		return refuse(name, "user '%s' can only connect via localhost", name)
	}
	return refuse(name, "user '%s' - invalid credentials", name)
}

func refuse(user, layout string, args ...any) *Refused {
	return &Refused{User: user, Reason: fmt.Sprintf(layout, args...)}
}

// shortened cuts a name that is too long for any user, because names are kept in memory and logged.
func shortened(name string) string {
	if len(name) <= maxName {
		return name
	}
	return name[:maxName] + "..."
}

// logInterval is how often a refusal without a checked password is logged.
const logInterval = time.Second

// unlogged counts refusals that are not logged. Checks are limited in rate, so each wrong password is logged. Logins without a check
// cost strangers nothing and are not limited, so only one per interval is logged.
type unlogged struct {
	mu   sync.Mutex // guards the fields below
	n    int        // since the last one that was logged
	last hook.Instant
}

// ShouldLog reports whether to log a refusal, and how many similar refusals were not logged since the last logged one.
func (s *Store) ShouldLog(r *Refused, now hook.Instant) (should bool, skipped int) {
	if !r.unchecked {
		return true, 0
	}
	u := &s.unlogged
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.last != 0 && now.Sub(u.last) < logInterval {
		u.n++
		return false, 0
	}
	skipped, u.n, u.last = u.n, 0, now
	return true, skipped
}

// Attempts counts logins since the store was made.
type Attempts struct{ Succeeded, Failed uint64 }

// Attempts returns the counts of logins by SASL (AMQP), and of those by name and password (HTTP).
func (s *Store) Attempts() (sasl, basic Attempts) {
	return s.logins[bySASL].read(), s.logins[byName].read()
}

// The ways to log in.
const (
	bySASL = iota
	byName
	ways
)

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

// credentials reads a SASL response. Its errors quote nothing of the response, because they are logged and may not contain passwords.
func credentials(mechanism, response string) (name, password string, err error) {
	switch mechanism {
	case "PLAIN":
		return plain(response)
	case "AMQPLAIN":
		return amqplain(response)
	}
	return "", "", amqp.Errorf(amqp.ReplyCommandInvalid, "unknown authentication mechanism '%s'", mechanism)
}

// plain reads NUL, name, NUL, password. Like RabbitMQ it refuses an authorization identity before the first NUL [RFC 4616].
func plain(response string) (name, password string, err error) {
	name, password, separated := strings.Cut(strings.TrimPrefix(response, "\x00"), "\x00")
	if !separated || response[0] != 0 || strings.Contains(password, "\x00") {
		return "", "", amqp.Errorf(amqp.ReplySyntaxError, "PLAIN response invalid: expected NUL, user name, NUL, password")
	}
	return name, password, nil
}

// amqplain reads a field table without its length, with LOGIN and PASSWORD.
func amqplain(response string) (name, password string, err error) {
	t, err := amqp.RawTable(response).Decode()
	if err != nil {
		return "", "", amqp.Errorf(amqp.ReplySyntaxError, "AMQPLAIN response invalid: expected a field table")
	}
	login, hasLogin := t.Lookup("LOGIN")
	secret, hasSecret := t.Lookup("PASSWORD")
	if !hasLogin || !hasSecret {
		return "", "", amqp.Errorf(amqp.ReplySyntaxError, "AMQPLAIN auth info is missing LOGIN or PASSWORD field")
	}
	name, okName := login.(string)
	password, okPassword := secret.(string)
	if !okName || !okPassword {
		return "", "", amqp.Errorf(amqp.ReplySyntaxError, "AMQPLAIN auth info uses unsupported type for LOGIN or PASSWORD field")
	}
	return name, password, nil
}
