package auth

import (
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
	// Elsewhere says that it is guest, who may log in from this machine only.
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
	return amqp.Errorf(amqp.ReplyAccessRefused, "Login was refused using authentication mechanism %s. For details see the broker logfile.", r.Mechanism)
}

// Login checks the response a client gave with connection.start-ok. The error is a [*Refused], or an [*amqp.Error] for a
// mechanism there is not or a response that is none.
func (s *Store) Login(mechanism, response string, from Origin) (User, error) {
	name, password, err := credentials(mechanism, response)
	if err != nil {
		s.logins[bySASL].count(false)
		return User{}, err
	}
	u, refused := s.authenticate(name, password, from)
	s.logins[bySASL].count(refused == nil)
	if refused != nil {
		refused.Mechanism = mechanism
		return User{}, refused
	}
	return u, nil
}

// Authenticate checks a name and a password. The error is a [*Refused].
func (s *Store) Authenticate(name, password string, from Origin) (User, error) {
	u, refused := s.authenticate(name, password, from)
	s.logins[byName].count(refused == nil)
	if refused != nil {
		return User{}, refused
	}
	return u, nil
}

func (s *Store) authenticate(name, password string, from Origin) (User, *Refused) {
	if password == "" {
		return User{}, refuse(name, "user '%s' attempted to log in with a blank password", name)
	}
	u := s.user(name)
	right, retry := s.verifier.verify(name, u, password, from)
	switch {
	case retry > 0:
		r := refuse(name, "too many failed logins of user '%s' from %s, or of others from there", name, from.Host)
		r.Retry = retry
		return User{}, r
	case !right || u == nil:
		return User{}, refuse(name, "user '%s' - invalid credentials", name)
	case name == Guest && !from.Loopback:
		r := refuse(name, "user '%s' can only connect via localhost", name)
		r.Elsewhere = true
		return User{}, r
	}
	return User{Name: u.Name, Tags: u.Tags, born: u.born}, nil
}

func refuse(user, layout string, args ...any) *Refused {
	return &Refused{User: user, Reason: fmt.Sprintf(layout, args...)}
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
