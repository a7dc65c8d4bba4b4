package process

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Shell is a session of sh that ends with the first command that fails, for pages whose commands build on each other.
type Shell struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Scanner
}

// NewShell starts a shell in a folder, with variables NAME=VALUE besides those of the test. The test ends it.
func NewShell(t *testing.T, dir string, variables ...string) *Shell {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-e")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), variables...)
	read, write := io.Pipe()
	cmd.Stdout, cmd.Stderr = write, write
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Cancel, cmd.WaitDelay = in.Close, Patience // it runs its traps, which end what it has started
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = write.CloseWithError(cmd.Wait()) // Run gets the status
	}()
	t.Cleanup(func() {
		_ = in.Close()
		_ = read.Close() // nobody reads on
		<-done
	})
	return &Shell{t: t, in: in, out: bufio.NewScanner(read)}
}

// Run passes commands to the shell and returns what they print, on both outputs. It fails the test if one of them fails.
func (s *Shell) Run(commands string) string {
	s.t.Helper()
	const end = "-- end of the block --"
	if _, err := fmt.Fprintf(s.in, "%s\nprintf '\\n%s\\n'\n", commands, end); err != nil {
		s.t.Fatal(err)
	}
	var printed strings.Builder
	for s.out.Scan() {
		if s.out.Text() == end {
			return strings.TrimSuffix(printed.String(), "\n")
		}
		fmt.Fprintln(&printed, s.out.Text())
	}
	s.t.Fatalf("%s\nfailed: %v\n%s", commands, s.out.Err(), printed.String())
	return ""
}
