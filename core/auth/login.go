package auth

import (
	"fmt"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
)

// Mechanisms are the SASL mechanisms [Store.Login] understands, as connection.start lists them.
const Mechanisms = "PLAIN AMQPLAIN"

// Refused is the error of a login with credentials that will not do. What is
// wrong with them is for the log only.
type Refused struct {
	Mechanism string
	User      string
	Reason    string
}

// Error says everything, for the log.
func (r *Refused) Error() string { return r.Mechanism + " login refused: " + r.Reason }

// Reply is what a client is told that has the capability authentication_failure_close.
func (r *Refused) Reply() *amqp.Error {
	return amqp.Errorf(amqp.ReplyAccessRefused, "Login was refused using authentication mechanism %s. For details see the broker logfile.", r.Mechanism)
}

// Login checks the response a client gave with connection.start-ok. loopback
// says that it connects from this machine. The error is a [*Refused], or an
// [*amqp.Error] for a mechanism there is not or a response that is none.
func (s *Store) Login(mechanism, response string, loopback bool) (User, error) {
	name, password, err := credentials(mechanism, response)
	if err != nil {
		return User{}, err
	}
	refused := &Refused{Mechanism: mechanism, User: name}
	if password == "" {
		refused.Reason = fmt.Sprintf("user '%s' attempted to log in with a blank password", name)
		return User{}, refused
	}
	u := s.user(name)
	if !s.verifier.verify(u, password) {
		refused.Reason = fmt.Sprintf("user '%s' - invalid credentials", name)
		return User{}, refused
	}
	if name == Guest && !loopback {
		refused.Reason = fmt.Sprintf("user '%s' can only connect via localhost", name)
		return User{}, refused
	}
	return u.User, nil
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
