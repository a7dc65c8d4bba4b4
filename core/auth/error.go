package auth

import (
	"errors"
	"fmt"
)

// The errors of asking for what does not exist.
var (
	ErrNoUser  = errors.New("no such user")
	ErrNoVHost = errors.New("no such vhost")
)

// Invalid is the error of a value that nobody can have.
type Invalid struct{ Text string }

func (e *Invalid) Error() string { return e.Text }

func invalid(layout string, args ...any) error { return &Invalid{fmt.Sprintf(layout, args...)} }

// errNoUser names the user that there is not.
func errNoUser(name string) error { return fmt.Errorf("user %q: %w", name, ErrNoUser) }

// errNoVHost names the vhost that there is not.
func errNoVHost(name string) error { return fmt.Errorf("vhost %q: %w", name, ErrNoVHost) }
