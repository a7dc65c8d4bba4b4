package auth

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
)

// Mechanisms are the SASL mechanisms [Store.Login] understands, as connection.start lists them.
const Mechanisms = "PLAIN AMQPLAIN"

// Refused is the error of a login with credentials that will not do. What is
// wrong with them is for the log only.
type Refused struct {
	Mechanism string // "" = not by SASL
	User      string
	Reason    string
	// Retry is how long to wait before the next try, if there were too many: the password was not looked at. 0 = try at once.
	Retry time.Duration
	// Busy says that too many logins wait for their turn, or that this one did so for too long: the password was not looked at.
	Busy bool
	// Unseen says that the password was not looked at: there was none, it came too early, or too many waited.
	Unseen bool
	// Elsewhere says that it is guest, who may log in from this machine only, with whatever password.
	Elsewhere bool
}

// Error says everything, for the log.
func (r *Refused) Error() string {
	if r.Mechanism == "" {
		return "login refused: " + r.Reason
	}
	return r.Mechanism + " login refused: " + r.Reason
}

// Reply is what a client is told that has the capability authentication_failure_close.
func (r *Refused) Reply() *amqp.Error {
	if r.Busy {
		return amqp.Errorf(amqp.ReplyConnectionForced, "too many logins at a time, try again later")
	}
	return amqp.Errorf(amqp.ReplyAccessRefused, "Login was refused using authentication mechanism %s. For details see the broker logfile.", r.Mechanism)
}

// Login checks the response a client gave with connection.start-ok. It may take a while: it waits for its turn, until ctx is done
// and nobody waits for it any more. The error is a [*Refused], or an [*amqp.Error] for a
// mechanism there is not or a response that is none.
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

// Authenticate checks a name and a password, as Login does. The error is a [*Refused].
func (s *Store) Authenticate(ctx context.Context, name, password string, from Origin) (User, error) {
	u, refused := s.authenticate(ctx, name, password, from)
	s.logins[byName].count(refused == nil)
	if refused != nil {
		return User{}, refused
	}
	return u, nil
}

// Waiting is how many passwords wait to be checked.
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
		r.Unseen = true
		return User{}, r
	}
	u, elsewhere := s.user(name), name == Guest && !from.Loopback
	var h Hash // without a user there is no password
	if u != nil {
		h = u.Password
	}
	v := s.verifier.verify(ctx, login{name: name, from: from, barred: elsewhere}, &h, password)
	if v.is == right {
		u = s.still(u)
	}
	if v.is == right && u != nil {
		return User{Name: u.Name, Tags: u.Tags, born: u.born}, nil
	}
	r := v.refuse(name, &from)
	r.Elsewhere = elsewhere
	return User{}, r
}

// refuse says what is wrong with a login.
func (v *verdict) refuse(name string, from *Origin) *Refused {
	switch v.is {
	case early:
		r := refuse(name, "too many failed logins of user '%s' from %s, or of others from there", name, from.Host)
		r.Retry, r.Unseen = v.retry, true
		return r
	case busy:
		r := refuse(name, "too many logins at a time: that of user '%s' from %s waits no longer", name, from.Host)
		r.Busy, r.Unseen = true, true
		return r
	case barred:
		return refuse(name, "user '%s' can only connect via localhost", name)
	}
	return refuse(name, "user '%s' - invalid credentials", name)
}

// still returns the user as it is by now, whose password was looked at a while ago: nil if it has another one, or is not any more.
func (s *Store) still(u *user) *user {
	now := s.user(u.Name)
	if now == nil || now.born != u.born || !now.Password.is(&u.Password) {
		return nil
	}
	return now
}

func refuse(user, layout string, args ...any) *Refused {
	return &Refused{User: user, Reason: fmt.Sprintf(layout, args...)}
}

// shortened is a name that is no longer than one has to be to see that it is nobody's: it waits in memory, and goes to the log.
func shortened(name string) string {
	if len(name) <= maxName {
		return name
	}
	return name[:maxName] + "..."
}

// credentials takes a response apart. Its errors repeat nothing of the response:
// they go to the log, and passwords do not.
func credentials(mechanism, response string) (name, password string, err error) {
	switch mechanism {
	case "PLAIN":
		return plain(response)
	case "AMQPLAIN":
		return amqplain(response)
	}
	return "", "", amqp.Errorf(amqp.ReplyCommandInvalid, "unknown authentication mechanism '%s'", mechanism)
}

// plain reads NUL, name, NUL, password. An identity to act as, which may precede
// them, is refused as in RabbitMQ [RFC 4616].
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
