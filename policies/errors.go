package policies

import (
	"errors"
	"strings"
)

// ErrNotJSON says that a policy's JSON cannot be read. RabbitMQ says no more than that; the errors that wrap it do.
var ErrNotJSON = errors.New("not_json")

// MissingError names what a policy must have and has not, as RabbitMQ's HTTP API does.
type MissingError struct{ Keys []string }

func (e *MissingError) Error() string {
	return "[{key_missing," + strings.Join(e.Keys, "},{key_missing,") + "}]"
}

// ValidationError says what is wrong with a policy, one fact a line. Its text is RabbitMQ's, line breaks and all.
type ValidationError struct{ Lines []string }

func (e *ValidationError) Error() string {
	return "Validation failed\n\n" + strings.Join(e.Lines, "\n") + "\n"
}

// invalidLine is a ValidationError of one line.
func invalidLine(line string) error {
	return &ValidationError{Lines: []string{line}}
}
