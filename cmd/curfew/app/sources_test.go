package app

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	codec "github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
)

// guess begins a login with a wrong password from a loopback address, and returns the connection.
func guess(t *testing.T, broker, from string, n int) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.DialContext(t.Context(), "tcp", broker)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_, err = conn.Write([]byte(codec.ProtocolHeader))
	if err == nil {
		_, err = io.ReadFull(conn, make([]byte, 8)) // the begin of connection.start
	}
	if err == nil {
		understands := codec.Table{{Key: "capabilities", Value: codec.Table{{Key: "authentication_failure_close", Value: true}}}}
		_, err = conn.Write(codec.AppendMethod(nil, 0, &codec.ConnectionStartOK{
			Mechanism: "PLAIN", Response: "\x00guest\x00wrong" + strconv.Itoa(n), ClientProperties: understands,
		}))
	}
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// refused waits for the answer to a login, and reports whether it is a refusal. It returns false if the connection is closed first.
func refused(conn net.Conn) bool {
	var got []byte
	part := make([]byte, 4096)
	for {
		n, err := conn.Read(part)
		if got = append(got, part[:n]...); bytes.Contains(got, []byte("ACCESS_REFUSED")) {
			return true
		}
		if err != nil {
			return false
		}
	}
}

// After a restart every user logs in for the first time, and used to wait until each of many strangers had had a turn. Users that have logged in
// from the same address before now come first.
func TestKnownAddressesComeFirstAfterARestart(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.1.1:0")
	if err != nil {
		t.Skip("this machine has one loopback address only:", err)
	}
	l.Close()
	dir := t.TempDir()
	first := spawn(t, dir)
	if err := login(first.address, "guest", "guest", "/"); err != nil {
		t.Fatal(err)
	}
	first.end(syscall.SIGTERM)
	second := spawn(t, dir)

	const strangers = 24
	var turns atomic.Int32
	var conns []net.Conn
	var all sync.WaitGroup
	for i := range strangers {
		conn := guess(t, second.address, "127.0.1."+strconv.Itoa(i+1), i)
		conns = append(conns, conn)
		all.Go(func() {
			if refused(conn) {
				turns.Add(1)
			}
		})
	}
	if err := login(second.address, "guest", "guest", "/"); err != nil {
		t.Fatal(err)
	}
	if n := turns.Load(); n > strangers/2 {
		t.Errorf("%d of %d strangers had their turns before", n, strangers)
	}
	for _, conn := range conns {
		conn.Close()
	}
	all.Wait()
}

// Whatever the file contains, the broker starts, logs the problem, and continues.
func TestSourcesFileIsDamaged(t *testing.T) {
	huge := make([]byte, 1<<20)
	rand.Read(huge)
	for name, put := range map[string]func(path string) error{
		"empty":  func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"random": func(path string) error { return os.WriteFile(path, huge[:1000], 0o600) },
		"huge":   func(path string) error { return os.WriteFile(path, huge, 0o600) },
		"zeros": func(path string) error {
			return os.WriteFile(path, bytes.Repeat([]byte{0}, auth.MaxSourcesBytes), 0o600)
		},
		"folder":  func(path string) error { return os.MkdirAll(filepath.Join(path, "x"), 0o700) },
		"pipe":    func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"nowhere": func(path string) error { return os.Symlink(path, path) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "sources")
			if err := put(path); err != nil {
				t.Fatal(err)
			}
			b := spawn(t, dir)
			if err := login(b.address, "guest", "guest", "/"); err != nil {
				t.Error(err)
			}
			b.end(syscall.SIGTERM)
			said := 0
			for _, r := range b.log {
				if text := fmt.Sprint(r["msg"]); strings.Contains(text, "addresses of") && r["level"] == "WARN" {
					said++
				}
			}
			want := 1
			if name == "folder" {
				want = 2 // it cannot be replaced, either
			}
			if said != want {
				t.Errorf("the log says it %d times, want %d: %v", said, want, b.log)
			}
			if code := b.cmd.ProcessState.ExitCode(); code != exitOK {
				t.Errorf("exit status %d", code)
			}
			if name == "folder" {
				return
			}
			users := auth.New(auth.Options{})
			good, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := users.DecodeSources(good); n != 1 || err != nil {
				t.Errorf("afterwards %d addresses are known: %v", n, err)
			}
		})
	}
}
