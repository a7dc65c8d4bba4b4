package peer

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

// If one of two nodes speaks TLS and the other does not, both report it. The listening node answers in a form that the dialling
// node understands, and the dialling node recognizes the mismatch by the first bytes.

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

// refusalTLS is a TLS record: a fatal alert, protocol_version [RFC 8446 6].
const refusalTLS = "\x15\x03\x01\x00\x02\x02\x46"

// beginsTLS reports whether the first bytes of a connection belong to TLS.
func beginsTLS(b []byte) bool {
	return len(b) > 0 && (b[0] == recordAlert || b[0] == recordHandshake)
}

// plainly translates the error of a TLS handshake. It becomes errSpeaksPlain if the other end is a node without TLS.
func plainly(err error) error {
	var r tls.RecordHeaderError
	if errors.As(err, &r) && string(r.RecordHeader[:]) == magic[:len(r.RecordHeader)] {
		return errSpeaksPlain
	}
	return err
}

// listening is how long a refused connection is read so that the refusal arrives: closing a socket with unread bytes resets the connection.
const listening = time.Second

// tellSpeech answers a dialling node if it speaks TLS and this node does not, or vice versa.
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
		_, _ = io.CopyN(io.Discard, conn, maxGreeting) // ends when the other node has read the answer
	}
}
