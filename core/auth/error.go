package auth

import (
	"errors"
	"fmt"
)

// Errors about a missing user or vhost wrap one of these.
var (
	ErrNoUser  = errors.New("no such user")
	ErrNoVHost = errors.New("no such vhost")
)

// Invalid is the error for a value that is not allowed.
type Invalid struct{ Text string }

func (e *Invalid) Error() string { return e.Text }

func invalid(layout string, args ...any) error { return &Invalid{fmt.Sprintf(layout, args...)} }

func errNoUser(name string) error { return fmt.Errorf("user %q: %w", name, ErrNoUser) }

func errNoVHost(name string) error { return fmt.Errorf("vhost %q: %w", name, ErrNoVHost) }
