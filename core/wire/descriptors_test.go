package wire

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/logtest"
	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/wlog"
)

// sockets returns both ends of a TCP connection.
func sockets(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if near, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close() })
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	return near, far
}

// Clients used to take all file descriptors: other nodes could not connect again, and logs got no new segments. The last ones are reserved.
func TestDescriptorsAreKept(t *testing.T) {
	near, far := sockets(t)
	most := max(descriptorOf(near), descriptorOf(far)) + 10
	logged := make(chan struct{}, 100)
	log := logtest.Log{Written: func() {
		select {
		case logged <- struct{}{}:
		default: // nobody waits any more
		}
	}}
	s := start(t, func(o *Options) {
		o.AMQP, o.Descriptors, o.Session.Log = "127.0.0.1:0", most, slog.New(slog.NewTextHandler(&log, nil))
	})
	address := s.Addresses()[0].String()
	var clients []net.Conn
	served := func() bool {
		socket, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, socket)
		_, err = socket.Write([]byte("AMQP\x00\x00\x09\x01"))
		_, failed := io.ReadFull(socket, make([]byte, 7))
		return errors.Join(err, failed) == nil
	}
	for served() {
		if len(clients) > 20 {
			t.Fatalf("%d clients are served, with descriptors from %d on", len(clients), most)
		}
	}
	for !strings.Contains(log.String(), "the last file descriptors are kept") {
		<-logged
	}
	for _, socket := range clients {
		socket.Close()
	}
	for !served() {
		runtime.Gosched() // the server closes its ends asynchronously
	}
	clients[len(clients)-1].Close()
}

// Relayed clients do not get reserved descriptors either, neither at the front nor at the owner: they try again.
func TestDescriptorsAreKeptFromRelays(t *testing.T) {
	near, far := sockets(t)
	s := newServer(t, func(o *Options) {
		o.Descriptors = 1
		o.Dial = func(context.Context, wlog.NodeID) (net.Conn, error) { return near, nil }
	})
	if _, err := s.handOver(t.Context(), session.Home{Owner: 2, Changed: make(chan struct{})}, &session.Handover{}); !errors.Is(err, errKept) {
		t.Errorf("handing over: got %v", err)
	}
	if _, err := far.Read(make([]byte, 1)); err == nil {
		t.Error("the stream is not closed")
	}
	near, far = sockets(t)
	if _, err := near.Write((&session.Handover{User: "u", ChannelMax: 1, FrameMax: 4096}).Append(nil)); err != nil {
		t.Fatal(err)
	}
	s.adopt(far, 2)
	if err := session.ReadAnswer(near); err == nil || !strings.Contains(err.Error(), "does not serve the vhost now") {
		t.Errorf("adopting: got %v", err)
	}
}
