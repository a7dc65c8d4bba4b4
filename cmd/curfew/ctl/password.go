package ctl

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// password is the second operand, or what is typed or piped in.
func (c *call) password(ctx context.Context) (string, error) {
	if len(c.operands) > 1 {
		return c.operands[1], nil
	}
	defer hideTyping(c.program.Stdin)()
	if c.talkative() {
		fmt.Fprint(c.program.Stdout, "Password: ")
		defer fmt.Fprintln(c.program.Stdout)
	}
	return readLine(ctx, c.program.Stdin)
}

var errNoPassword = failed(dataError, "Password is not provided via argument or stdin")

// readLine reads a line, which on a terminal can take for ever.
func readLine(ctx context.Context, from io.Reader) (string, error) {
	type result struct {
		line string
		err  error
	}
	read := make(chan result, 1)
	go func() {
		line, err := bufio.NewReader(from).ReadString('\n')
		read <- result{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case r := <-read:
		if r.err != nil && !errors.Is(r.err, io.EOF) {
			return "", r.err
		}
		if r.line == "" {
			return "", errNoPassword
		}
		return strings.TrimRight(r.line, "\r\n"), nil
	}
}

// hideTyping stops a terminal from showing what is typed, until restore is called.
func hideTyping(from io.Reader) (restore func()) {
	file, ok := from.(*os.File)
	if !ok {
		return func() {}
	}
	if info, err := file.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 || stty(file, "-echo") != nil {
		return func() {}
	}
	return func() { _ = stty(file, "echo") } // the shell's own next prompt sets it, too
}

func stty(terminal *os.File, setting string) error {
	cmd := exec.Command("stty", setting)
	cmd.Stdin = terminal
	return cmd.Run()
}
