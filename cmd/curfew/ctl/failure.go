package ctl

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/curfewmq/curfew/cmd/curfew/printable"
)

// The exit statuses are rabbitmqctl's, taken from BSD's sysexits.
const (
	usageError       = 64 // the command line is wrong; another broker would not change that
	dataError        = 65 // an operand or the input is invalid
	noUser           = 67
	unavailable      = 69 // the broker cannot be reached, or refuses the request
	softwareError    = 70 // something exists already
	temporaryFailure = 75 // it took too long, or may succeed later
	noPermission     = 77 // the API does not accept the user
)

// failure ends a command: an exit status, and the text to print.
type failure struct {
	status int
	text   string
}

func (f *failure) Error() string { return f.text }

// failed returns a failure that the broker reported.
func failed(status int, format string, args ...any) error {
	return &failure{status, "Error:\n" + fmt.Sprintf(format, args...)}
}

// misuse is an error in the command line.
type misuse struct {
	status  int
	problem string
}

func (m *misuse) Error() string { return m.problem }

func misused(format string, args ...any) error {
	return &misuse{usageError, fmt.Sprintf(format, args...)}
}

// report prints an error and returns the exit status.
func (p *Program) report(err error) int {
	if err == nil {
		return 0
	}
	if f, ok := errors.AsType[*failure](err); ok {
		fmt.Fprintln(p.Stderr, printable.Lines(f.text))
		return f.status
	}
	fmt.Fprintf(p.Stderr, "Error:\n%s\n", printable.Lines(err.Error()))
	return unavailable
}

func noSuchUser(name string) error { return failed(noUser, "User \"%s\" does not exist", name) }

// instead replaces the API's "not found" by e, because the API does not say what is missing.
func instead(err, e error) error {
	if isRefusal(err, http.StatusNotFound) {
		return e
	}
	return err
}
