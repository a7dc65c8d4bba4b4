package app

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	codec "github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/sdk/hook"
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

// refused waits for the answer to a login, and reports whether it is a refusal. It is false if the connection is closed before.
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

// After a restart everybody logs in for the first time, and waited until each of many strangers had a turn. Who has logged in before, from the same
// address, comes before them.
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

// The file is written a minute after an address is new, and not again without one.
func TestSourcesAreWrittenSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, sourcesFile)
		users := auth.New(auth.Options{Hashing: auth.SHA512})
		if err := users.CreateDefaults(); err != nil {
			t.Fatal(err)
		}
		logIn := func(host string) {
			t.Helper()
			if _, err := users.Authenticate(t.Context(), "guest", "guest", auth.Origin{Host: host, Loopback: true, Now: hook.Instant(1)}); err != nil {
				t.Fatal(err)
			}
		}
		var full atomic.Pointer[chan struct{}]
		space := func() <-chan struct{} {
			if ended := full.Load(); ended != nil {
				return *ended
			}
			return nil
		}
		k := keepSources(dir, users, space, slog.New(slog.DiscardHandler))
		written := func() []byte {
			b, _ := os.ReadFile(path)
			return b
		}
		after := func(d time.Duration) []byte {
			time.Sleep(d)
			synctest.Wait()
			return written()
		}
		logIn("192.0.2.1")
		if after(sourcesInterval-time.Second) != nil {
			t.Error("it is written before a minute")
		}
		if b := after(time.Second); !bytes.Equal(b, users.EncodeSources()) {
			t.Errorf("after a minute there are %d bytes", len(b))
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("others may read it: %v, %v", info.Mode(), err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		logIn("192.0.2.1")
		if after(time.Hour) != nil {
			t.Error("it is written although no address is new")
		}
		logIn("192.0.2.2")
		full.Store(new(make(chan struct{})))
		if after(time.Hour) != nil {
			t.Error("it is written although the disk is full")
		}
		full.Store(nil)
		k.end()
		if !bytes.Equal(written(), users.EncodeSources()) {
			t.Error("it is not written at the end")
		}
	})
}

// Whatever is in the place of the file, the broker starts, says so, and goes on.
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
			path := filepath.Join(dir, sourcesFile)
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
				if text := fmt.Sprint(r["msg"]); strings.Contains(text, "from which addresses logins succeeded") && r["level"] == "WARN" {
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
			good, err := readBounded(path, auth.MaxSourcesBytes)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := users.DecodeSources(good); n != 1 || err != nil {
				t.Errorf("afterwards %d addresses are known: %v", n, err)
			}
		})
	}
}
