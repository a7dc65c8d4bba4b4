package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// binaryHeader returns a header of version 2.
func binaryHeader(command, family byte, rest string) string {
	length := binary.BigEndian.AppendUint16(nil, uint16(len(rest)))
	return signature + string([]byte{version2 | command, family}) + string(length) + rest
}

const (
	ends4 = "\xc0\x00\x02\x01" + "\xc6\x33\x64\x01" + "\x12\x67\x16\x28"
	facts = "\x20\x00\x0d\x01\x00\x00\x00\x00\x21\x00\x05TLSv1" // facts about TLS
)

var ends6 = "\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x01" + strings.Repeat("\x00", 15) + "\x01" + "\x12\x67\x16\x28"

func TestHeaders(t *testing.T) {
	v4 := Header{netip.MustParseAddrPort("192.0.2.1:4711"), netip.MustParseAddrPort("198.51.100.1:5672")}
	v6 := Header{netip.MustParseAddrPort("[2001:db8::1]:4711"), netip.MustParseAddrPort("[::1]:5672")}
	for name, c := range map[string]struct {
		header string
		want   Header
	}{
		"IPv4":                     {"PROXY TCP4 192.0.2.1 198.51.100.1 4711 5672\r\n", v4},
		"IPv6":                     {"PROXY TCP6 2001:db8::1 ::1 4711 5672\r\n", v6},
		"IPv4 in IPv6":             {"PROXY TCP6 ::ffff:192.0.2.1 ::ffff:198.51.100.1 4711 5672\r\n", v4},
		"port 0":                   {"PROXY TCP4 192.0.2.1 192.0.2.1 0 0\r\n", Header{netip.MustParseAddrPort("192.0.2.1:0"), netip.MustParseAddrPort("192.0.2.1:0")}},
		"unknown":                  {"PROXY UNKNOWN\r\n", Header{}},
		"unknown, with something":  {"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n", Header{}},
		"as long as can be":        {"PROXY UNKNOWN " + strings.Repeat("x", 91) + "\r\n", Header{}},
		"2: IPv4":                  {binaryHeader(1, 0x11, ends4), v4},
		"2: IPv6":                  {binaryHeader(1, 0x21, ends6), v6},
		"2: IPv4 and more":         {binaryHeader(1, 0x11, ends4+facts), v4},
		"2: IPv4 and 16 KiB":       {binaryHeader(1, 0x11, ends4+strings.Repeat("\x04", maxBinary-12)), v4},
		"2: for itself":            {binaryHeader(0, 0x00, ""), Header{}},
		"2: for itself, with ends": {binaryHeader(0, 0x11, ends4), Header{}},
		"2: unspecified":           {binaryHeader(1, 0x00, facts), Header{}},
		"2: a Unix socket":         {binaryHeader(1, 0x31, strings.Repeat("/", 216)), Header{}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, slow := range []bool{false, true} {
				in := strings.NewReader(c.header + "AMQP\x00\x00\x09\x01")
				r := io.Reader(in)
				if slow {
					r = iotest.OneByteReader(in)
				}
				got, err := Read(r)
				if got != c.want || err != nil {
					t.Errorf("got %v, %v, want %v", got, err, c.want)
				}
				if rest, _ := io.ReadAll(in); string(rest) != "AMQP\x00\x00\x09\x01" {
					t.Errorf("%q is left", rest)
				}
			}
		})
	}
}

func TestWrongHeaders(t *testing.T) {
	for _, c := range []struct{ header, want string }{
		{"AMQP\x00\x00\x09\x01", `no PROXY header: it begins with "A"`},
		{"\x16\x03\x01\x02\x00", "no PROXY header"},
		{"GET / HTTP/1.1\r\n\r\n", "no PROXY header"},
		{"PROXX TCP4 1.1.1.1", "no PROXY header"},
		{"\r\n\r\n\x00\r\nQUIX\n", "no PROXY header"},
		{"proxy TCP4 1.1.1.1 2.2.2.2 1 2\r\n", "no PROXY header"},
		{"PROXY", "unexpected EOF"},
		{"PROXY TCP4 1.1.1.1 2.2.2.2 1 ", "unexpected EOF"},
		{"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\n", "without a carriage return"},
		{"PROXY UDP4\r\nPROXY", "a line break within the first 12 bytes"},
		{"PROXY TCP5 1.1.1.1 2.2.2.2 1 2\r\n", `unknown protocol "TCP5"`},
		{"PROXY  TCP4 1.1.1.1 2.2.2.2 1 2\r\n", `unknown protocol ""`},
		{"PROXY TCP4 1.1.1.1 2.2.2.2 1\r\n", "3 fields after TCP4"},
		{"PROXY TCP4 1.1.1.1 2.2.2.2 1 2 3\r\n", "5 fields after TCP4"},
		{"PROXY TCP4 1.1.1.1 2.2.2.2 65536 2\r\n", `source: "65536" is not a port`},
		{"PROXY TCP4 1.1.1.1 2.2.2.2 1 -2\r\n", `destination: "-2" is not a port`},
		{"PROXY TCP4 1.1.1.1 2.2.2.2 01 2\r\n", `source: "01" is not a port`},
		{"PROXY TCP4 1.1.1.1 2.2.2.2 +1 2\r\n", `source: "+1" is not a port`},
		{"PROXY TCP4 ::1 2.2.2.2 1 2\r\n", `source: "::1" is not an address of TCP4`},
		{"PROXY TCP6 ::1 2.2.2.2 1 2\r\n", `destination: "2.2.2.2" is not an address of TCP6`},
		{"PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n", "is not an address of TCP6"},
		{"PROXY TCP4 localhost 2.2.2.2 1 2\r\n", "is not an address of TCP4"},
		{"PROXY TCP4 1.1.1.1\x00 2.2.2.2 1 2\r\n", "is not an address of TCP4"},
		{"PROXY UNKNOWN " + strings.Repeat("x", 92) + "\r\n", "no line break within 107 bytes"},
		{"PROXY TCP4 " + strings.Repeat("9", 1000), "no line break within 107 bytes"},
		{signature, "unexpected EOF"},
		{signature + "\x21\x11\x00\x0c\x01", "unexpected EOF"},
		{signature + "\x11\x11\x00\x0c" + ends4, "unknown version 1, expected 1 or 2"},
		{binaryHeader(2, 0x11, ends4), "unknown command 2"},
		{binaryHeader(1, 0x12, ends4), "unknown family and transport 0x12"},
		{binaryHeader(1, 0x22, ends6), "unknown family and transport 0x22"},
		{binaryHeader(1, 0x41, ends6), "unknown family and transport 0x41"},
		{binaryHeader(1, 0x11, ends4[:11]), "expected at least 12 for the addresses"},
		{binaryHeader(1, 0x21, ends4), "expected at least 36 for the addresses"},
		{binaryHeader(1, 0x31, ends6), "expected at least 216 for the addresses"},
		{signature + "\x21\x11\xff\xff" + ends4, "a header of 65535 bytes, expected at most 16384"},
		{signature + "\x21\x11\x01\x00" + ends4, "unexpected EOF"},
	} {
		got, err := Read(iotest.OneByteReader(strings.NewReader(c.header)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, %v, want %s", c.header[:min(len(c.header), 60)], got, err, c.want)
		}
	}
	if _, err := Read(strings.NewReader("")); !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("nothing at all: %v", err)
	}
}

// Input that does not begin like a header is refused at its first byte, so a peer that sends little and waits for an answer does not wait long.
func TestNoHeaderIsSeenAtOnce(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	go func() { _, _ = w.Write([]byte("A")) }()
	if _, err := Read(r); !errors.Is(err, ErrNoHeader) {
		t.Errorf("got %v", err)
	}
}

func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"PROXY TCP4 192.0.2.1 198.51.100.1 4711 5672\r\nAMQP", "PROXY TCP6 2001:db8::1 ::1 4711 5672\r\n", "PROXY UNKNOWN\r\n",
		binaryHeader(1, 0x11, ends4+facts), binaryHeader(1, 0x21, ends6), binaryHeader(0, 0, ""), binaryHeader(1, 0x31, strings.Repeat("/", 216)),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		whole := bytes.NewReader(b)
		got, err := Read(whole)
		pieces := bytes.NewReader(b)
		again, err2 := Read(iotest.OneByteReader(pieces))
		if got != again || (err == nil) != (err2 == nil) {
			t.Fatalf("%q: %v, %v at once, %v, %v in pieces", b, got, err, again, err2)
		}
		if err != nil {
			return
		}
		if whole.Len() != pieces.Len() {
			t.Errorf("%q: %d bytes are left at once, %d in pieces", b, whole.Len(), pieces.Len())
		}
		if got.Source.IsValid() != got.Destination.IsValid() || got.Source.Addr().Is4In6() || got.Source.Addr().Zone() != "" {
			t.Errorf("%q: %v", b, got)
		}
		if n := len(b) - whole.Len(); n > len(signature)+4+maxBinary {
			t.Errorf("a header of %d bytes", n)
		}
	})
}
