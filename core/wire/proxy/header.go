// Package proxy reads the header in which a proxy names the client that it connects for: the PROXY protocol of HAProxy, versions 1 and 2
// [haproxy.org: proxy-protocol.txt].
//
// A peer that may send such a header can claim any address. Headers are therefore accepted only from addresses that the operator lists, and
// required from these: the bytes of a connection never decide whether it has a header.
package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
)

// Header holds the addresses of the connection that a proxy forwards. Both are invalid if the proxy gives none: it connects for itself
// (LOCAL), does not know the client (UNKNOWN), or the client has no address (a Unix socket).
type Header struct {
	Source, Destination netip.AddrPort
}

const (
	signature = "\r\n\r\n\x00\r\nQUIT\n" // begins version 2
	begin     = "PROXY "                 // begins version 1
	maxText   = 107                      // bytes of the longest header of version 1
	maxBinary = 16 << 10                 // bytes after the fixed part of version 2: addresses, and data that is skipped
)

// ErrNoHeader is the error of a connection that begins with something else.
var ErrNoHeader = errors.New("no PROXY header")

// Read reads a header, and not a byte more. Its errors come from the reader, or describe the fault of the header.
func Read(r io.Reader) (Header, error) {
	var b [maxText]byte
	have := 0
	for have < len(signature) {
		n, err := r.Read(b[have:len(signature)])
		have += n
		start := string(b[:have])
		if !strings.HasPrefix(signature, start) && !strings.HasPrefix(begin, start[:min(have, len(begin))]) {
			return Header{}, fmt.Errorf("%w: it begins with %q", ErrNoHeader, start)
		}
		if err != nil && have < len(signature) {
			return Header{}, incomplete(err, have)
		}
	}
	if string(b[:have]) == signature {
		return readBinary(r)
	}
	if bytes.IndexByte(b[:have], '\n') >= 0 {
		return Header{}, fmt.Errorf("a line break within the first %d bytes of the header", have)
	}
	for have < maxText {
		if _, err := io.ReadFull(r, b[have:have+1]); err != nil {
			return Header{}, incomplete(err, have)
		}
		have++
		if b[have-1] == '\n' {
			return parseText(string(b[:have]))
		}
	}
	return Header{}, fmt.Errorf("no line break within %d bytes of the header", maxText)
}

// incomplete returns the error for a header that breaks off, or the reader's error if not a byte of it has come.
func incomplete(err error, have int) error {
	if errors.Is(err, io.EOF) && have > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}

// parseText parses a header of version 1, with its line break.
func parseText(line string) (Header, error) {
	line, ok := strings.CutSuffix(line, "\r\n")
	if !ok {
		return Header{}, errors.New("the header ends without a carriage return")
	}
	fields := strings.Split(line, " ")
	family := fields[1] // exists, because begin ends with a space
	if family == "UNKNOWN" {
		return Header{}, nil
	}
	if family != "TCP4" && family != "TCP6" {
		return Header{}, fmt.Errorf("unknown protocol %q, expected TCP4, TCP6 or UNKNOWN", family)
	}
	if len(fields) != 6 {
		return Header{}, fmt.Errorf("%d fields after %s, expected two addresses and two ports", len(fields)-2, family)
	}
	source, err := parseEnd(family, fields[2], fields[4])
	if err != nil {
		return Header{}, fmt.Errorf("source: %w", err)
	}
	destination, err := parseEnd(family, fields[3], fields[5])
	if err != nil {
		return Header{}, fmt.Errorf("destination: %w", err)
	}
	return Header{source, destination}, nil
}

func parseEnd(family, address, port string) (netip.AddrPort, error) {
	addr, err := netip.ParseAddr(address)
	if err != nil || addr.Zone() != "" || addr.Is4() != (family == "TCP4") {
		return netip.AddrPort{}, fmt.Errorf("%q is not an address of %s", address, family)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || len(port) > 1 && port[0] == '0' {
		return netip.AddrPort{}, fmt.Errorf("%q is not a port", port)
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(n)), nil
}

// family is a family of addresses and a transport, as version 2 numbers them.
type family byte

const (
	unspecified family = 0x00
	tcp4        family = 0x11
	tcp6        family = 0x21
	unixStream  family = 0x31
)

// size returns the size of the addresses in bytes. ok is false for families that our connections cannot have.
func (f family) size() (n int, ok bool) {
	switch f {
	case unspecified:
		return 0, true
	case tcp4:
		return 12, true
	case tcp6:
		return 36, true
	case unixStream:
		return 216, true
	}
	return 0, false
}

const (
	version2 = 0x20
	local    = 0 // commands
	proxied  = 1
)

// readBinary reads a header of version 2 after its signature. It skips everything after the addresses, such as facts about TLS.
func readBinary(r io.Reader) (Header, error) {
	var b [36]byte
	if _, err := io.ReadFull(r, b[:4]); err != nil {
		return Header{}, incomplete(err, 1)
	}
	version, command, of, length := b[0]&0xf0, b[0]&0x0f, family(b[1]), int(binary.BigEndian.Uint16(b[2:]))
	if version != version2 {
		return Header{}, fmt.Errorf("unknown version %d, expected 1 or 2", version>>4)
	}
	if length > maxBinary {
		return Header{}, fmt.Errorf("a header of %d bytes, expected at most %d", length, maxBinary)
	}
	if command != local && command != proxied {
		return Header{}, fmt.Errorf("unknown command %d, expected 0 (LOCAL) or 1 (PROXY)", command)
	}
	if command == local {
		return Header{}, skip(r, length)
	}
	size, ok := of.size()
	if !ok {
		return Header{}, fmt.Errorf("unknown family and transport 0x%02x, expected TCP over IPv4 or IPv6, a Unix stream, or unspecified", byte(of))
	}
	if length < size {
		return Header{}, fmt.Errorf("a header of %d bytes, expected at least %d for the addresses", length, size)
	}
	if of != tcp4 && of != tcp6 {
		return Header{}, skip(r, length)
	}
	if _, err := io.ReadFull(r, b[:size]); err != nil {
		return Header{}, incomplete(err, 1)
	}
	return addresses(b[:size]), skip(r, length-size)
}

// addresses decodes the addresses of version 2: source and destination, and then their ports.
func addresses(b []byte) Header {
	n := (len(b) - 4) / 2
	source, _ := netip.AddrFromSlice(b[:n]) // n is 4 or 16
	destination, _ := netip.AddrFromSlice(b[n : 2*n])
	return Header{
		netip.AddrPortFrom(source.Unmap(), binary.BigEndian.Uint16(b[2*n:])),
		netip.AddrPortFrom(destination.Unmap(), binary.BigEndian.Uint16(b[2*n+2:])),
	}
}

func skip(r io.Reader, n int) error {
	_, err := io.CopyN(io.Discard, r, int64(n))
	return incomplete(err, 1)
}
