package policies

import (
	"errors"
	"strings"
)

// ErrNotJSON means that a policy's JSON cannot be parsed. RabbitMQ's text has no details; the errors that wrap it do.
var ErrNotJSON = errors.New("not_json")

// MissingError names the required members that a policy lacks, in the words of RabbitMQ's HTTP API.
type MissingError struct{ Keys []string }

func (e *MissingError) Error() string {
	return "[{key_missing," + strings.Join(e.Keys, "},{key_missing,") + "}]"
}

// ValidationError has the mistakes in a policy, one a line. Its text is RabbitMQ's, including the line breaks.
type ValidationError struct{ Lines []string }

func (e *ValidationError) Error() string {
	return "Validation failed\n\n" + strings.Join(e.Lines, "\n") + "\n"
}

// invalidLine is a ValidationError of one line.
func invalidLine(line string) error {
	return &ValidationError{Lines: []string{line}}
}
