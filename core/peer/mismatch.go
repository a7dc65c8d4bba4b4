package peer

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

// Nodes of which some speak TLS and others do not are told so, on both sides: the one that listens answers in the other's way of
// speaking, which the one that dials recognizes by the first bytes.

const keysOfTLS = "cluster.tls.cert, cluster.tls.key and cluster.tls.ca"

var (
	errSpeaksTLS   = errors.New("it speaks TLS with other nodes, and this node does not: set " + keysOfTLS + " at this node, as at the others")
	errSpeaksPlain = errors.New("it does not speak TLS with other nodes, and this node does: set " + keysOfTLS + " at that node, as at the others")
)

// Types of records of TLS [RFC 8446 5.1].
const (
	recordAlert     = 0x15
	recordHandshake = 0x16
)

// refusalTLS is a record of TLS: a fatal alert, protocol_version [RFC 8446 6].
const refusalTLS = "\x15\x03\x01\x00\x02\x02\x46"

// beginsTLS reports whether the first bytes of a connection, if there are any, are those of TLS.
func beginsTLS(b []byte) bool {
	return len(b) > 0 && (b[0] == recordAlert || b[0] == recordHandshake)
}

// plainly returns the error of a TLS handshake, which is errSpeaksPlain if a node is at the other end that does not speak TLS.
func plainly(err error) error {
	var r tls.RecordHeaderError
	if errors.As(err, &r) && string(r.RecordHeader[:]) == magic[:len(r.RecordHeader)] {
		return errSpeaksPlain
	}
	return err
}

// listening is how long a connection that was refused is read, so that the refusal arrives: closing a socket with unread bytes resets it.
const listening = time.Second

// tellSpeech answers a node that dialled and speaks TLS although this one does not, or the other way round.
func tellSpeech(conn net.Conn, err error) {
	switch {
	case errors.Is(err, errSpeaksTLS):
		err = writeGreeting(conn, &greeting{Refused: "it speaks no TLS"})
	case errors.Is(err, errSpeaksPlain):
		_, err = io.WriteString(conn, refusalTLS)
	default:
		return
	}
	if err == nil {
		err = conn.SetReadDeadline(time.Now().Add(listening))
	}
	if err == nil {
		_, _ = io.CopyN(io.Discard, conn, maxGreeting) // it ends when the other has read the answer
	}
}
