package app

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// manager listens on NOTIFY_SOCKET.
type manager struct {
	t       *testing.T
	conn    *net.UnixConn
	address string
}

func newManager(t *testing.T, address string) *manager {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &manager{t, conn, address}
}

// next returns the assignments of the next notification.
func (m *manager) next() []string {
	m.t.Helper()
	if err := m.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		m.t.Fatal(err)
	}
	b := make([]byte, 4096)
	n, err := m.conn.Read(b)
	if err != nil {
		m.t.Fatal(err)
	}
	return strings.Split(string(b[:n]), "\n")
}

// until reads up to the notification with an assignment that has this prefix, and returns that notification.
func (m *manager) until(prefix string) []string {
	m.t.Helper()
	for {
		all := m.next()
		if slices.ContainsFunc(all, func(s string) bool { return strings.HasPrefix(s, prefix) }) {
			return all
		}
	}
}

func (m *manager) want(prefix string, all ...string) {
	m.t.Helper()
	if got := m.until(prefix); !slices.Equal(got, all) {
		m.t.Errorf("got %q, want %q", got, all)
	}
}

func TestNotify(t *testing.T) {
	m := newManager(t, filepath.Join(t.TempDir(), "notify"))
	t.Setenv(notifySocket, m.address)
	t.Setenv(watchdogTime, "20000")
	t.Setenv(watchdogPID, strconv.Itoa(os.Getpid()))
	p := launchWith(t, newFake(), func(a *app) { a.environ = os.Environ() }, local)
	m.want("STATUS=", "STATUS=starting")
	m.want("READY=", "READY=1", "STATUS=ready")
	m.want("WATCHDOG=", "WATCHDOG=1")
	m.want("WATCHDOG=", "WATCHDOG=1")
	for _, name := range []string{notifySocket, watchdogTime, watchdogPID} {
		if _, set := os.LookupEnv(name); set {
			t.Errorf("%s is left to child processes", name)
		}
	}

	before := monotonic()
	p.signals <- syscall.SIGHUP
	got := m.until("RELOADING=")
	if len(got) != 3 || got[0] != "RELOADING=1" || got[2] != "STATUS=reading the configuration again" {
		t.Errorf("got %q", got)
	}
	at, err := strconv.ParseInt(strings.TrimPrefix(got[1], "MONOTONIC_USEC="), 10, 64)
	if reloaded := time.Duration(at) * time.Microsecond; err != nil || reloaded < before.Truncate(time.Microsecond) || reloaded > monotonic() {
		t.Errorf("%s is not between %s and %s", got[1], before, monotonic())
	}
	if got := m.until("READY="); got[0] != "READY=1" { // a sign of life may have said the status meanwhile
		t.Errorf("got %q", got)
	}
	close(p.fake.release)
	p.signals <- syscall.SIGTERM
	m.want("STOPPING=", "STOPPING=1", "STATUS=closing connections")
	p.wantExit(exitOK)
}

// A broker whose log has failed should be restarted: it gives no sign of life.
func TestNotifyState(t *testing.T) {
	m := newManager(t, filepath.Join(t.TempDir(), "notify"))
	f := newFake()
	n := openNotifier([]string{notifySocket + "=" + m.address, watchdogTime + "=1000000"}, slog.New(slog.DiscardHandler))
	s := &service{broker: f, notifier: n}
	defer n.close()
	for _, tt := range []struct {
		alarms, want []string
	}{
		{nil, []string{"WATCHDOG=1", "STATUS=ready"}},
		{nil, []string{"WATCHDOG=1"}},
		{[]string{"memory", "disk"}, []string{"WATCHDOG=1", "STATUS=ready; publishers wait: memory, disk"}},
		{[]string{"draining"}, []string{"WATCHDOG=1", "STATUS=draining"}},
		{[]string{"memory", "shard 1"}, []string{"STATUS=failed: shard 1"}},
		{[]string{"majority", "clock"}, []string{"WATCHDOG=1", "STATUS=waits for another node: there is no majority"}},
		{[]string{"clock"}, []string{"WATCHDOG=1", "STATUS=ready; owns nothing: its clock differs from those of the other nodes"}},
		{nil, []string{"WATCHDOG=1", "STATUS=ready"}},
	} {
		f.alarms = tt.alarms
		s.notifyNow()
		for _, want := range tt.want {
			m.want("", want)
		}
	}
	n.recovering(1, 3e6, 17e6)
	m.want("", "EXTEND_TIMEOUT_USEC=60000000", "STATUS=starting: recovering shard 1, 3 of 17 MB")
	n.show("no\nREADY=1")
	m.want("", "STATUS=no READY=1")
}

func TestNotifyAbstractSocket(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("abstract sockets are Linux's")
	}
	m := newManager(t, "@curfew-test-"+strconv.Itoa(os.Getpid()))
	n := openNotifier([]string{notifySocket + "=" + m.address}, slog.New(slog.DiscardHandler))
	defer n.close()
	n.show("x", "READY=1")
	m.want("", "READY=1", "STATUS=x")
}

// A missing or broken listener does not prevent the broker from running.
func TestNotifyNobody(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for _, tt := range []struct{ name, socket, watchdog, pid, want string }{
		{"no socket", "", "20", "", ""},
		{"gone", missing, "", "", "the service manager cannot be notified"},
		{"not local", "vsock:2:9999", "", "", "is neither a path nor an abstract socket"},
		{"no time", "", "", "", ""},
	} {
		var b strings.Builder
		n := openNotifier([]string{notifySocket + "=" + tt.socket, watchdogTime + "=" + tt.watchdog}, slog.New(slog.NewTextHandler(&b, nil)))
		if n != nil || !strings.Contains(b.String(), tt.want) || tt.want == "" && b.Len() > 0 {
			t.Errorf("%s: got %v, log %s", tt.name, n, &b)
		}
		n.show("x", "READY=1") // does nothing
		n.reloading()
		n.close()
	}
	m := newManager(t, filepath.Join(t.TempDir(), "notify"))
	for _, tt := range []struct {
		time, pid string
		want      time.Duration
		logged    bool
	}{
		{"", "", 0, false},
		{"3000000", "", 3 * time.Second, false},
		{"3000000", strconv.Itoa(os.Getpid()), 3 * time.Second, false},
		{"3000000", "1", 0, false},
		{"0", "", 0, true},
		{"3s", "", 0, true},
		{"99999999999999999", "", 0, true},
	} {
		var b strings.Builder
		n := openNotifier([]string{notifySocket + "=" + m.address, watchdogTime + "=" + tt.time, watchdogPID + "=" + tt.pid}, slog.New(slog.NewTextHandler(&b, nil)))
		if n.watchdog != tt.want || (b.Len() > 0) != tt.logged {
			t.Errorf("%q for %q: got %v, log %s", tt.time, tt.pid, n.watchdog, &b)
		}
		n.close()
	}
	var b strings.Builder
	n := openNotifier([]string{notifySocket + "=" + m.address}, slog.New(slog.NewTextHandler(&b, nil)))
	defer n.close()
	_ = m.conn.Close()
	n.send("READY=1")
	n.send("READY=1")
	if got := strings.Count(b.String(), "was not notified"); got != 1 {
		t.Errorf("logged %d times: %s", got, &b)
	}
}

// A separate process, from start to end.
func TestNotifyProcess(t *testing.T) {
	dir := t.TempDir()
	m := newManager(t, filepath.Join(dir, "notify"))
	t.Setenv(notifySocket, m.address)
	broker := spawn(t, filepath.Join(dir, "data"))
	m.want("READY=", "READY=1", "STATUS=ready")
	broker.end(syscall.SIGTERM)
	m.want("STATUS=closing", "STOPPING=1", "STATUS=closing connections")
	writeFile(t, filepath.Join(dir, "file"), "")
	code, _, _ := invoke("serve", "--amqp", "127.0.0.1:0", "--management", "off", "--data", filepath.Join(dir, "file"))
	if got := m.until("STATUS=cannot start"); code != exitFailure || !strings.Contains(got[0], filepath.Join(dir, "file")) {
		t.Errorf("exit status %d, got %q", code, got)
	}
}
