package bench

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
)

func TestRelayPassesOnUntilItsStarterIsGone(t *testing.T) {
	stdin, hold := io.Pipe()
	said, stdout := io.Pipe()
	ended := make(chan int, 1)
	go func() { ended <- relayMain(stdin, stdout, io.Discard) }()
	line := make([]byte, 100)
	n, err := said.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	from, to := dial(t, string(line[:n])), dial(t, string(line[:n]))
	sent := bytes.Repeat([]byte("relay"), 200_000)
	go func() {
		_, _ = from.Write(sent) // the reader notices missing bytes
		_ = from.Close()
	}()
	if got, err := io.ReadAll(to); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d of %d bytes came through, error %v", len(got), len(sent), err)
	}
	_ = hold.Close()
	if status := <-ended; status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimSpace(address))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
