package wire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"
	"time"

	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/wire/proxy"
)

// keepAlive detects peers that vanished on connections without heartbeats.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 15 * time.Second, Count: 4}

// listen listens on an address, unless it is empty, with TLS if secure is not nil. Errors name the configuration key.
func (s *Server) listen(ctx context.Context, key, address string, secure *tls.Config) error {
	if address == "" {
		return nil
	}
	l, err := Listen(ctx, s.log, key, address, s.options.Descriptors)
	if err != nil {
		return err
	}
	s.listeners = append(s.listeners, listener{s.proxied(l), secure})
	return nil
}

// How long Listen tries an address that is in use, and how often.
const (
	inUse      = 5 * time.Second
	inUseRetry = 100 * time.Millisecond
)

// Listen listens on an address. Errors name its configuration key. If the address is in use, Listen tries again for some seconds: the
// address of a killed process stays in use until the kernel has freed the process's memory, which takes half a second or more per gigabyte.
// Clients may use only the lowest descriptors file descriptors; 0 = all.
func Listen(ctx context.Context, log *slog.Logger, key, address string, descriptors int) (net.Listener, error) {
	config := net.ListenConfig{KeepAliveConfig: keepAlive}
	l, err := config.Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		log.Warn("the address is in use: trying again", "key", key, "address", address, "at_most", inUse)
		for end := time.Now().Add(inUse); errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(end); {
			select {
			case <-time.After(inUseRetry):
				l, err = config.Listen(ctx, "tcp", address)
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return sparing{l, descriptors}, nil
}

// proxied returns a listener that reads the PROXY header of connections from the configured
// proxies; without proxies it returns l. It owns l.
func (s *Server) proxied(l net.Listener) net.Listener {
	return proxy.Listen(l, proxy.Options{
		Proxies: s.options.Proxies, Timeout: s.options.HandshakeTimeout, Most: s.options.Handshakes, Key: "listen.proxy-protocol", Log: s.log,
	})
}

// listener accepts connections, with TLS if secure is not nil.
type listener struct {
	net.Listener
	secure *tls.Config
}

func (l listener) Accept() (net.Conn, error) {
	socket, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	forwarded, _ := socket.(*proxy.Conn)
	tcp, ok := socket.(*net.TCPConn)
	if forwarded != nil {
		tcp, ok = forwarded.TCPConn, true
	}
	if !ok {
		return l.over(socket), nil
	}
	k, err := newTCPConn(tcp, l.secure != nil)
	if err != nil { // the socket is closed already
		socket.Close()
		return nil, err
	}
	k.forwarded = forwarded
	return l.over(k), nil
}

func (l listener) over(socket net.Conn) net.Conn {
	if l.secure == nil {
		return socket
	}
	return tls.Server(socket, l.secure)
}

// accept serves new connections until the listener is closed. It retries after errors such as a lack of file descriptors.
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

// sleep waits for d. It returns false if the server ends first.
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

// peerOf describes the far end of a socket. A client behind a proxy never counts as local, whatever the proxy says: the proxy may have
// received the connection from another proxy on this machine.
func peerOf(socket net.Conn) session.Peer {
	secure, ok := socket.(*tls.Conn)
	remote := socket.RemoteAddr()
	tcp, _ := remote.(*net.TCPAddr)
	k := tcpConnOf(socket)
	direct := k == nil || k.forwarded == nil
	peer := session.Peer{
		Address:  remote.String(),
		Local:    socket.LocalAddr().String(),
		Loopback: direct && tcp != nil && tcp.IP.IsLoopback(),
		TLS:      ok,
	}
	if ok {
		peer.Certificate = func() *x509.Certificate { return certificateOf(secure) }
	}
	return peer
}

// certificateOf returns the certificate that the peer has presented; nil = none was verified.
func certificateOf(socket *tls.Conn) *x509.Certificate {
	chains := socket.ConnectionState().VerifiedChains
	if len(chains) == 0 || len(chains[0]) == 0 {
		return nil
	}
	return chains[0][0]
}

// errKept is the error of a connection that was closed because of its file descriptor.
var errKept = kept{}

type kept struct{}

func (kept) Error() string {
	return "too many open files: the last file descriptors are kept for logs and for other nodes"
}

// Timeout and Temporary make an HTTP server accept again after a while.
func (kept) Timeout() bool   { return false }
func (kept) Temporary() bool { return true }

// sparing is a listener that keeps file descriptors free for other uses: it closes
// connections whose descriptor is not below most. The system always assigns the lowest free
// number, so all lower ones are in use then. most 0 closes no connection.
type sparing struct {
	net.Listener
	most int
}

func (l sparing) Accept() (net.Conn, error) {
	socket, err := l.Listener.Accept()
	if err != nil || !isKept(socket, l.most) {
		return socket, err
	}
	socket.Close()
	return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: errKept}
}

// isKept reports whether the descriptor of a connection is not for clients. Clients may use those below most; 0 = all.
func isKept(socket net.Conn, most int) bool { return most > 0 && descriptorOf(socket) >= most }

// descriptorOf returns the file descriptor of a connection; -1 if it has none.
func descriptorOf(socket net.Conn) int {
	if secure, ok := socket.(*tls.Conn); ok {
		socket = secure.NetConn()
	}
	has, ok := socket.(syscall.Conn)
	if !ok {
		return -1
	}
	number := -1
	if raw, err := has.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { number = int(fd) }) // a closed connection has none
	}
	return number
}
