package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/curfewmq/curfew/core/session"
)

// keepAlive finds peers that are gone without a word where no heartbeat was negotiated.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 15 * time.Second, Count: 4}

func (s *Server) listen(ctx context.Context, address string, secure bool) error {
	config := net.ListenConfig{KeepAliveConfig: keepAlive}
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", address, err)
	}
	if secure {
		l = tls.NewListener(l, s.tls.config())
	}
	s.listeners = append(s.listeners, l)
	return nil
}

// accept serves whoever connects, until the listener is closed. Running out of file descriptors passes.
func (s *Server) accept(l net.Listener) {
	const shortest, longest = 5 * time.Millisecond, time.Second
	wait := shortest
	for {
		socket, err := l.Accept()
		if err == nil {
			wait = shortest
			s.serve(socket)
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		s.log.Error("accept", "address", l.Addr().String(), "error", err, "retry_in", wait)
		if !s.sleep(wait) {
			return
		}
		wait = min(2*wait, longest)
	}
}

// sleep waits for d. It returns false when the server ends.
func (s *Server) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.quit:
		return false
	}
}

// peerOf describes the far end of a socket.
func peerOf(socket net.Conn) session.Peer {
	_, secure := socket.(*tls.Conn)
	remote := socket.RemoteAddr()
	tcp, _ := remote.(*net.TCPAddr)
	return session.Peer{
		Address:  remote.String(),
		Local:    socket.LocalAddr().String(),
		Loopback: tcp != nil && tcp.IP.IsLoopback(),
		TLS:      secure,
	}
}
