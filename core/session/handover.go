package session

import (
	"context"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Handover is the information with which the owner of a vhost can serve a connection that another node, the front, has accepted. The front
// has authenticated the client. It is read only.
type Handover struct {
	Peer       Peer // the client; Certificate is nil
	Security   Security
	User       string
	Account    uint64 // the user's account number: see [auth.Store.AccountOf]
	Mechanism  string // of the login
	Properties amqp.Table
	ChannelMax int
	FrameMax   int
	Heartbeat  uint16 // seconds; 0 means none
	VHost      string
	Applied    wlog.Index // how much of the registry the front knew: the owner must know at least that
}

// Security describes the encryption between the client and the front. The zero Security means none.
type Security struct {
	Version, Suite uint16 // as package crypto/tls numbers them
	Certificate    []byte // of the client, verified by the front, in DER; nil if the client presented none
}

// A stream from the front to the owner begins with a handover:
//
//	0       4         5        9
//	+-------+---------+--------+-------------+
//	| magic | version | length | field table |
//	+-------+---------+--------+-------------+
//
// It is a table because nodes of different releases exchange it: a node ignores fields that it does not know.
const (
	handoverMagic   = "CFHO"
	handoverVersion = 1
	handoverHead    = len(handoverMagic) + 1 + 4
)

// Limits of a handover, in bytes.
const (
	maxHandover    = 128 << 10
	maxCertificate = 64 << 10
	maxAddress     = 255
	// maxFrameMax is the highest frame-max that can be configured: nodes may be configured differently.
	maxFrameMax = 16 << 20
)

// Append appends the encoded handover. A certificate that is too large is left out: it is used for listings only.
func (h *Handover) Append(dst []byte) []byte {
	certificate := h.Security.Certificate
	if len(certificate) > maxCertificate {
		certificate = nil
	}
	dst = append(dst, handoverMagic...)
	dst = append(dst, handoverVersion)
	return amqp.AppendTable(dst, amqp.Table{
		{Key: "address", Value: h.Peer.Address},
		{Key: "local", Value: h.Peer.Local},
		{Key: "loopback", Value: h.Peer.Loopback},
		{Key: "tls", Value: h.Peer.TLS},
		{Key: "tls-version", Value: h.Security.Version},
		{Key: "tls-suite", Value: h.Security.Suite},
		{Key: "certificate", Value: certificate},
		{Key: "user", Value: h.User},
		{Key: "account", Value: int64(h.Account)},
		{Key: "mechanism", Value: h.Mechanism},
		{Key: "properties", Value: amqp.AppendTable(nil, h.Properties)}, // as bytes: a nested table could exceed the limit on nesting
		{Key: "channel-max", Value: int64(h.ChannelMax)},
		{Key: "frame-max", Value: int64(h.FrameMax)},
		{Key: "heartbeat", Value: h.Heartbeat},
		{Key: "vhost", Value: h.VHost},
		{Key: "applied", Value: int64(h.Applied)},
	})
}

// ReadHandover reads a handover, and not a byte more. Errors name the field and the accepted range.
func ReadHandover(r io.Reader) (*Handover, error) {
	var head [handoverHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, fmt.Errorf("handover: %w", err)
	}
	if string(head[:4]) != handoverMagic {
		return nil, fmt.Errorf("handover: it begins with %q, expected %q", head[:4], handoverMagic)
	}
	if v := head[4]; v != handoverVersion {
		return nil, fmt.Errorf("handover: version %d, expected %d", v, handoverVersion)
	}
	n := binary.BigEndian.Uint32(head[5:])
	if n > maxHandover {
		return nil, fmt.Errorf("handover: %d bytes, expected at most %d", n, maxHandover)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, fmt.Errorf("handover: %w", err)
	}
	return parseHandover(b)
}

func parseHandover(b []byte) (*Handover, error) {
	table, err := amqp.RawTable(b).Decode()
	if err != nil {
		return nil, fmt.Errorf("handover: %w", err)
	}
	f := fields{table: table}
	h := &Handover{
		Peer:     Peer{Address: f.text("address", maxAddress), Local: f.text("local", maxAddress), Loopback: f.flag("loopback"), TLS: f.flag("tls")},
		Security: Security{Version: f.short("tls-version"), Suite: f.short("tls-suite"), Certificate: f.bytes("certificate", maxCertificate)},
		User:     f.text("user", rabbit.MaxName), Account: uint64(f.number("account", math.MinInt64, math.MaxInt64)),
		Mechanism:  f.text("mechanism", handshakeFrameMax),
		ChannelMax: int(f.number("channel-max", 1, math.MaxUint16)),
		FrameMax:   int(f.number("frame-max", amqp.FrameMinSize, maxFrameMax)),
		Heartbeat:  f.short("heartbeat"),
		VHost:      f.text("vhost", rabbit.MaxName),
		Applied:    wlog.Index(f.number("applied", 0, math.MaxInt64)),
	}
	properties := f.bytes("properties", maxHandover)
	if f.err != nil {
		return nil, fmt.Errorf("handover: %w", f.err)
	}
	t, n, err := amqp.ParseTable(properties)
	if err == nil && n != len(properties) {
		err = fmt.Errorf("%d bytes after the table", len(properties)-n)
	}
	if err != nil {
		return nil, fmt.Errorf("handover: properties: %w", err)
	}
	h.Properties = t
	return h, nil
}

// fields reads values of a table. err is the first error.
type fields struct {
	table amqp.Table
	err   error
}

// field returns a value, which must be a T.
func field[T any](f *fields, key string) (v T) {
	got, ok := f.table.Lookup(key)
	if !ok {
		f.fail("%s is missing", key)
		return v
	}
	if v, ok = got.(T); !ok {
		f.fail("%s is of type %s", key, amqp.TypeName(got))
	}
	return v
}

func (f *fields) fail(layout string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf(layout, args...)
	}
}

func (f *fields) flag(key string) bool { return field[bool](f, key) }

func (f *fields) short(key string) uint16 { return field[uint16](f, key) }

func (f *fields) text(key string, most int) string {
	s := field[string](f, key)
	if len(s) > most {
		f.fail("%s has %d bytes, expected at most %d", key, len(s), most)
	}
	return s
}

func (f *fields) bytes(key string, most int) []byte {
	b := field[[]byte](f, key)
	if len(b) > most {
		f.fail("%s has %d bytes, expected at most %d", key, len(b), most)
	}
	return b
}

func (f *fields) number(key string, low, high int64) int64 {
	n := field[int64](f, key)
	if n < low || n > high {
		f.fail("%s is %d, expected %d to %d", key, n, low, high)
	}
	return n
}

// errTryAgain answers a handover if the node does not serve the vhost now, or does not know enough of the registry yet.
var errTryAgain = errors.New("the node does not serve the vhost now")

// The answer to a handover. If it accepts, the frames of the connection follow:
//
//	0        1      3       5        7      8
//	+--------+------+-------+--------+------+--------+
//	| status | code | class | method | size | text   |
//	+--------+------+-------+--------+------+--------+
//
// All fields except the status describe the error for the client. They are 0 without one.
const answerHead = 8

// status is the first byte of an answer.
type status byte

const (
	accepted status = iota + 1
	tryAgain
	refused
)

// AppendAnswer appends the answer to a handover. nil accepts it, an [*amqp.Error] goes to the client, and any other error means that the
// front should try again.
func AppendAnswer(dst []byte, err error) []byte {
	if err == nil {
		return append(dst, byte(accepted), 0, 0, 0, 0, 0, 0, 0)
	}
	e, ok := errors.AsType[*amqp.Error](err)
	if !ok {
		return append(dst, byte(tryAgain), 0, 0, 0, 0, 0, 0, 0)
	}
	text := e.Text[:min(len(e.Text), 255)]
	dst = append(dst, byte(refused))
	dst = binary.BigEndian.AppendUint16(dst, e.Code)
	dst = binary.BigEndian.AppendUint16(dst, e.Class)
	dst = binary.BigEndian.AppendUint16(dst, e.Method)
	return append(append(dst, byte(len(text))), text...)
}

// ReadAnswer reads the answer to a handover, and not a byte more. It returns nil if the handover is accepted, errTryAgain, or the
// [*amqp.Error] for the client. Other errors come from the stream.
func ReadAnswer(r io.Reader) error {
	var head [answerHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return fmt.Errorf("answer to a handover: %w", err)
	}
	text := make([]byte, head[7])
	if _, err := io.ReadFull(r, text); err != nil {
		return fmt.Errorf("answer to a handover: %w", err)
	}
	switch status(head[0]) {
	case accepted:
		return nil
	case tryAgain:
		return errTryAgain
	case refused:
		e := amqp.Errorf(binary.BigEndian.Uint16(head[1:]), "%s", text)
		return e.In(binary.BigEndian.Uint16(head[3:]), binary.BigEndian.Uint16(head[5:]))
	}
	return fmt.Errorf("answer to a handover: status %d, expected %d to %d", head[0], accepted, refused)
}

// Front is the node that has handed over a connection.
type Front struct {
	Node wlog.NodeID
	TLS  bool // the stream from it is encrypted
}

// Adopt returns a connection that a front has handed over, after connection.open; connection.open-ok is pending. Adopt waits, until ctx
// is done, until this node knows as much of the registry as the front did. wake is as for Accept. The error goes to [AppendAnswer].
func (s *Server) Adopt(ctx context.Context, now hook.Instant, h *Handover, from Front, wake func()) (*Conn, error) {
	if s.WaitApplied != nil {
		if err := s.WaitApplied(ctx, h.Applied); err != nil {
			return nil, errors.Join(errTryAgain, err)
		}
	}
	if s.moved(h.VHost) {
		return nil, errTryAgain
	}
	c := s.accept(h.peer(), wake, !from.TLS)
	c.front = from.Node
	c.mechanism, c.properties, c.wanted = h.Mechanism, h.Properties, h.VHost
	c.frameMax, c.channelMax, c.heartbeat = h.FrameMax, h.ChannelMax, h.Heartbeat
	c.understand(h.Properties)
	c.round.tick(now)
	outdated, err := c.openAdopted(h)
	if outdated && s.Fresh != nil && s.Refresh(ctx) == nil {
		_, err = c.openAdopted(h)
	}
	if err == nil {
		return c, nil
	}
	if errors.Is(err, errTryAgain) || s.moved(h.VHost) {
		return nil, errTryAgain
	}
	c.log().Warn("connection error", "state", "opening", "error", err, "node", from.Node)
	return nil, err
}

// openAdopted opens the vhost of a handover for its user.
func (c *Conn) openAdopted(h *Handover) (outdated bool, err error) {
	u, ok := c.srv.Users.LoggedIn(h.User, h.Account)
	if !ok {
		return true, errOtherAccount(h.User)
	}
	c.user = u
	return c.openHere(h.VHost)
}

// errOtherAccount returns the error for a user that logged in to an account that the owner does not know, or with an outdated password.
func errOtherAccount(user string) *amqp.Error {
	return amqp.Errorf(amqp.ReplyNotAllowed, "user '%s' is deleted, or has another password", user).In(amqp.ClassConnection, amqp.MethodConnectionOpen)
}

// peer returns the client as the front saw it.
func (h *Handover) peer() Peer {
	p := h.Peer
	if p.TLS {
		p.Certificate = func() *x509.Certificate { return h.Security.ClientCertificate() }
	}
	return p
}

// ClientCertificate returns the client's certificate; nil = it has presented none.
func (s *Security) ClientCertificate() *x509.Certificate {
	if len(s.Certificate) == 0 {
		return nil
	}
	cert, err := x509.ParseCertificate(s.Certificate)
	if err != nil { // the front has verified it, so the front runs a later release
		return nil
	}
	return cert
}
