package bench

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
)

// relayCommand is the only argument of the relay's process.
const relayCommand = "relay"

// relay is a process that only passes on the bytes that it reads: the least work that a broker can do.
type relay struct {
	addr string
	pid  int
	stop func() error
}

// startRelay starts this program again as a relay, in its own session, as a service would be.
func startRelay() (*relay, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, relayCommand)
	cmd.SysProcAttr = ownSession()
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop := func() error { return errors.Join(stdin.Close(), cmd.Wait()) }
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("no address: %w", err), stop())
	}
	return &relay{addr: strings.TrimSpace(line), pid: cmd.Process.Pid, stop: stop}, nil
}

// relayMain is the main function of the relay: it writes its address to stdout and relays until stdin ends.
func relayMain(stdin io.Reader, stdout, stderr io.Writer) int {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		_, err = fmt.Fprintln(stdout, ln.Addr())
	}
	if err == nil {
		go func() { _ = passOn(ln) }() // its clients get errors
		_, err = io.Copy(io.Discard, stdin)
		err = errors.Join(err, ln.Close())
	}
	if err != nil {
		fmt.Fprintln(stderr, "curfew-bench: relay:", err)
		return 1
	}
	return 0
}

// passOn writes the bytes of the first client to the second until the first disconnects.
func passOn(ln net.Listener) error {
	from, err := ln.Accept()
	if err != nil {
		return err
	}
	to, err := ln.Accept()
	if err != nil {
		return errors.Join(err, from.Close())
	}
	return errors.Join(pump(to, from), from.Close(), to.Close())
}

// pump copies through a buffer of this process. io.Copy would let the kernel pass the bytes from socket to socket.
func pump(to io.Writer, from io.Reader) error {
	buf := make([]byte, readSize)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
