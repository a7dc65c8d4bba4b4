package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/cmd/curfew/usage"
	"github.com/curfewmq/curfew/core/mgmt/probe"
)

// notifier reports the broker's state to systemd, or whatever program has set NOTIFY_SOCKET
// [sd_notify(3)]. nil = no program has. Any goroutine may use it.
type notifier struct {
	conn     *net.UnixConn
	watchdog time.Duration // the longest time between two signs of life; 0 = none are required
	log      *slog.Logger
	failed   atomic.Bool // an error has been logged

	mu     sync.Mutex // guards status
	status string     // the status sent last
}

// The variables of sd_notify.
const (
	notifySocket = "NOTIFY_SOCKET"
	watchdogTime = "WATCHDOG_USEC"
	watchdogPID  = "WATCHDOG_PID"
)

// openNotifier returns a notifier for the socket in the environment, and removes the variables from the process's environment, because they
// are not for its children.
func openNotifier(environ []string, log *slog.Logger) *notifier {
	vars := usage.Variables(environ)
	address := vars[notifySocket]
	if address == "" {
		return nil
	}
	for _, name := range []string{notifySocket, watchdogTime, watchdogPID} {
		_ = os.Unsetenv(name) // cannot fail: the name is valid
	}
	n := &notifier{log: log}
	var err error
	if n.conn, err = dialNotify(address); err != nil {
		log.Warn("the service manager cannot be notified", "socket", address, "error", err)
		return nil
	}
	if n.watchdog, err = watchdogOf(vars); err != nil {
		log.Warn("the service manager's watchdog setting is invalid and ignored", "error", err)
	}
	return n
}

// dialNotify connects to a socket: a path, or @ before an abstract name.
func dialNotify(address string) (*net.UnixConn, error) {
	if address[0] != '/' && address[0] != '@' {
		return nil, errors.New("is neither a path nor an abstract socket")
	}
	return net.DialUnix("unixgram", nil, &net.UnixAddr{Net: "unixgram", Name: address})
}

// watchdogOf returns how often the service manager expects a sign of life from this process.
func watchdogOf(vars map[string]string) (time.Duration, error) {
	text := vars[watchdogTime]
	if pid := vars[watchdogPID]; text == "" || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0, nil
	}
	const longest = int64(365 * 24 * time.Hour / time.Microsecond)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 || n > longest {
		return 0, fmt.Errorf("%s: %q is not a number of microseconds from 1 to %d", watchdogTime, text, longest)
	}
	return time.Duration(n) * time.Microsecond, nil
}

// close closes the socket.
func (n *notifier) close() {
	if n != nil {
		n.failed.Store(true) // errors of later notifications do not matter
		_ = n.conn.Close()   // no data waits in it
	}
}

// notifyTime bounds a notification: a service manager that does not read must not block the broker.
const notifyTime = time.Second

// send sends assignments. Only the first error is logged.
func (n *notifier) send(assignments ...string) {
	if n == nil {
		return
	}
	err := n.conn.SetWriteDeadline(time.Now().Add(notifyTime))
	if err == nil {
		_, err = n.conn.Write([]byte(strings.Join(assignments, "\n")))
	}
	if err != nil && !n.failed.Swap(true) {
		n.log.Warn("the service manager was not notified", "error", err)
	}
}

// show sends a one-line status, together with other assignments. A status alone is sent only if it has changed.
func (n *notifier) show(status string, more ...string) {
	if n == nil {
		return
	}
	n.mu.Lock()
	same := n.status == status
	n.status = status
	n.mu.Unlock()
	if !same {
		more = append(more, "STATUS="+strings.Join(strings.Fields(status), " "))
	}
	if len(more) > 0 {
		n.send(more...)
	}
}

// recoveryTime is how long the service manager should wait for the next sign that a recovery goes on.
const recoveryTime = time.Minute

// recovering reports the progress of a recovery, in bytes of a log.
func (n *notifier) recovering(shard uint32, done, total int64) {
	const mb = 1e6
	n.show(fmt.Sprintf("starting: recovering shard %d, %d of %d MB", shard, done/mb, total/mb),
		"EXTEND_TIMEOUT_USEC="+strconv.FormatInt(recoveryTime.Microseconds(), 10))
}

// reloading reports that the configuration is being reloaded. show("…", "READY=1") reports the end.
func (n *notifier) reloading() {
	if n == nil {
		return
	}
	n.show("reading the configuration again", "RELOADING=1", "MONOTONIC_USEC="+strconv.FormatInt(monotonic().Microseconds(), 10))
}

// statusTime is the time between two looks at the status. watchdogShare is the part of the watchdog's time between two signs of life: half
// of it, so that one may come late.
const (
	statusTime    = 2 * time.Second
	watchdogShare = 2
)

// notify reports changes of the broker's state, and signs of life while it is live, until ctx ends.
func (s *service) notify(ctx context.Context) {
	if s.notifier == nil {
		return
	}
	interval := statusTime
	if w := s.notifier.watchdog; w > 0 {
		interval = min(interval, max(w/watchdogShare, time.Millisecond))
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		s.notifyNow()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// notifyNow gives no sign of life if /healthz is not 200, so that the process is restarted.
func (s *service) notifyNow() {
	alarms := s.broker.Alarms()
	if s.notifier.watchdog > 0 && len(probe.Health.Failures(alarms)) == 0 {
		s.notifier.send("WATCHDOG=1")
	}
	if !s.draining.Load() {
		s.notifier.show(statusOf(alarms))
	}
}

// statusOf describes a broker with the given alarms.
func statusOf(alarms []string) string {
	if failures := probe.Health.Failures(alarms); len(failures) > 0 {
		return "failed: " + strings.Join(failures, ", ")
	}
	blocking := slices.DeleteFunc(slices.Clone(alarms), func(alarm string) bool { return alarm == probe.Clock })
	switch {
	case slices.Contains(alarms, probe.Draining):
		return "draining"
	case slices.Contains(alarms, probe.Alone):
		return "waits for another node: there is no majority"
	case len(blocking) > 0:
		return "ready; publishers wait: " + strings.Join(blocking, ", ")
	case len(alarms) > 0:
		return "ready; owns nothing: its clock differs from those of the other nodes"
	}
	return "ready"
}
