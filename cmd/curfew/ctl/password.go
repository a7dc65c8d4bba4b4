package ctl

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// password returns the operand with that index, or reads the password from standard input.
func (c *call) password(ctx context.Context, operand int) (string, error) {
	if len(c.operands) > operand {
		return c.operands[operand], nil
	}
	if c.verbose() {
		fmt.Fprint(c.program.Stdout, "Password: ")
		defer fmt.Fprintln(c.program.Stdout)
	}
	read := func() (string, error) { return readLine(c.program.Stdin) }
	if file, ok := c.program.Stdin.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		fd := int(file.Fd())
		if state, err := term.GetState(fd); err == nil {
			defer func() { _ = term.Restore(fd, state) }() // if ctx ends, the read continues, and the echo would stay off
		}
		read = func() (string, error) {
			password, err := term.ReadPassword(fd)
			return string(password), err
		}
	}
	return unless(ctx, read)
}

var errNoPassword = failed(dataError, "Password is not provided via argument or stdin")

// readLine reads a line without its end.
func readLine(from io.Reader) (string, error) {
	line, err := bufio.NewReader(from).ReadString('\n')
	if line != "" && errors.Is(err, io.EOF) {
		err = nil
	}
	return strings.TrimRight(line, "\r\n"), err
}

// unless runs read, which may wait for a person, and returns an error if ctx ends first.
func unless(ctx context.Context, read func() (string, error)) (string, error) {
	type result struct {
		line string
		err  error
	}
	results := make(chan result, 1)
	go func() {
		line, err := read()
		results <- result{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case r := <-results:
		if errors.Is(r.err, io.EOF) {
			return "", errNoPassword
		}
		return r.line, r.err
	}
}
