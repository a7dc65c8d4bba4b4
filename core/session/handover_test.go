package session

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
)

func someHandover() *Handover {
	return &Handover{
		Peer:     Peer{Address: "192.0.2.1:4711", Local: "192.0.2.2:5671", Loopback: true, TLS: true},
		Security: Security{Version: 0x0304, Suite: 0x1301, Certificate: []byte{0x30, 0x82}},
		User:     "anna", Account: 1<<63 + 5, Mechanism: "PLAIN",
		Properties: amqp.Table{{Key: "connection_name", Value: "billing"}, {Key: "capabilities", Value: amqp.Table{{Key: "basic.nack", Value: true}}}},
		ChannelMax: 2047, FrameMax: 131072, Heartbeat: 60, VHost: "orders", Applied: 1 << 40,
	}
}

func TestHandoverRoundTrip(t *testing.T) {
	deep := amqp.Table{}
	for range amqp.MaxTableDepth - 1 {
		deep = amqp.Table{{Key: "in", Value: deep}}
	}
	for _, h := range []*Handover{
		someHandover(),
		{User: "u", ChannelMax: 1, FrameMax: amqp.FrameMinSize, Properties: amqp.Table{}, Security: Security{Certificate: []byte{}}},
		{User: "u", ChannelMax: 65535, FrameMax: maxFrameMax, Properties: deep, Security: Security{Certificate: []byte{}}},
	} {
		stream := bytes.NewReader(append(h.Append(nil), "and frames"...))
		got, err := ReadHandover(stream)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, h) {
			t.Errorf("got  %+v\nwant %+v", got, h)
		}
		if rest, _ := io.ReadAll(stream); string(rest) != "and frames" {
			t.Errorf("%q is left, want what follows the handover", rest)
		}
	}
}

// A certificate that is larger than a handover may be costs the listing, not the connection.
func TestHandoverLargeCertificate(t *testing.T) {
	h := someHandover()
	h.Security.Certificate = make([]byte, maxCertificate+1)
	got, err := ReadHandover(bytes.NewReader(h.Append(nil)))
	if err != nil || len(got.Security.Certificate) != 0 {
		t.Errorf("got a certificate of %d bytes, %v; want none", len(got.Security.Certificate), err)
	}
}

// A handover from another node is checked, field by field.
func TestHandoverRefused(t *testing.T) {
	change := func(key string, v any) []byte {
		good := someHandover().Append(nil)
		table, _, err := amqp.ParseTable(good[handoverHead-4:])
		if err != nil {
			t.Fatal(err)
		}
		var changed amqp.Table
		for _, f := range table {
			if f.Key == key && v == nil {
				continue
			}
			if f.Key == key {
				f.Value = v
			}
			changed = append(changed, f)
		}
		return amqp.AppendTable(good[:handoverHead-4:handoverHead-4], changed)
	}
	tests := []struct {
		name, want string
		bytes      []byte
	}{
		{"another protocol", `begins with "AMQP"`, []byte(amqp.ProtocolHeader + "\x00")},
		{"a later version", "version 2, expected 1", []byte("CFHO\x02\x00\x00\x00\x00")},
		{"a size that nobody has", "4294967295 bytes, expected at most 131072", []byte("CFHO\x01\xff\xff\xff\xff")},
		{"the end in the head", "unexpected EOF", []byte("CFHO\x01")},
		{"the end in the table", "unexpected EOF", someHandover().Append(nil)[:100]},
		{"no table", "field of 2 octets", []byte("CFHO\x01\x00\x00\x00\x02\x09a")},
		{"a field is missing", "user is missing", change("user", nil)},
		{"a field of another type", "vhost is of type signedint", change("vhost", int32(1))},
		{"a name that is too long", "user has 256 bytes, expected at most 255", change("user", strings.Repeat("u", 256))},
		{"no channel", "channel-max is 0, expected 1 to 65535", change("channel-max", int64(0))},
		{"a frame-max that is too small", "frame-max is 4095, expected 4096 to 16777216", change("frame-max", int64(4095))},
		{"a frame-max that is too large", "frame-max is 16777217, expected 4096 to 16777216", change("frame-max", int64(16<<20+1))},
		{"a negative index", "applied is -1, expected 0 to", change("applied", int64(-1))},
		{"malformed properties", "properties", change("properties", []byte{0, 0, 0, 5, 1})},
		{"too many properties", "properties: 1 bytes after the table", change("properties", []byte{0, 0, 0, 0, 0})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ReadHandover(bytes.NewReader(tt.bytes))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q in it", err, tt.want)
			}
		})
	}
}

func FuzzReadHandover(f *testing.F) {
	f.Add(someHandover().Append(nil))
	f.Add([]byte("CFHO\x01\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ReadHandover(bytes.NewReader(b))
		if err != nil {
			return
		}
		if h.FrameMax < amqp.FrameMinSize || h.ChannelMax < 1 || len(h.User) > 255 {
			t.Fatalf("accepted %+v", h)
		}
		again, err := ReadHandover(bytes.NewReader(h.Append(nil)))
		if err != nil || again.User != h.User || again.Account != h.Account || again.Applied != h.Applied || again.VHost != h.VHost {
			t.Errorf("read %+v, sent and read again %+v, %v", h, again, err)
		}
	})
}

func TestAnswerRoundTrip(t *testing.T) {
	refusal := amqp.Errorf(amqp.ReplyNotAllowed, "vhost %s not found", "x").In(10, 40)
	long := amqp.Errorf(amqp.ReplyInternalError, "%s", strings.Repeat("x", 300))
	for _, sent := range []error{nil, refusal, long, errTryAgain, errors.New("any other")} {
		stream := bytes.NewReader(append(AppendAnswer(nil, sent), "frames"...))
		got := ReadAnswer(stream)
		var e *amqp.Error
		switch {
		case sent == nil && got != nil:
			t.Errorf("accepted, and read as %v", got)
		case errors.As(sent, &e):
			want := *e
			want.Text = want.Text[:min(255, len(want.Text))]
			if read, ok := errors.AsType[*amqp.Error](got); !ok || *read != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		case sent != nil && !errors.Is(got, errTryAgain):
			t.Errorf("%v is read as %v, want %v", sent, got, errTryAgain)
		}
		if rest, _ := io.ReadAll(stream); string(rest) != "frames" {
			t.Errorf("%q is left, want what follows the answer", rest)
		}
	}
	if err := ReadAnswer(strings.NewReader("\x07\x00\x00\x00\x00\x00\x00\x00")); err == nil || !strings.Contains(err.Error(), "status 7, expected 1 to 3") {
		t.Errorf("got %v", err)
	}
}

func FuzzReadAnswer(f *testing.F) {
	f.Add(AppendAnswer(nil, nil))
	f.Add(AppendAnswer(nil, amqp.Errorf(amqp.ReplyNotAllowed, "no")))
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := ReadAnswer(bytes.NewReader(b)); err == nil && b[0] != byte(accepted) {
			t.Errorf("%x is accepted", b)
		}
	})
}
