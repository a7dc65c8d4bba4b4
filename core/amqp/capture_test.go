package amqp

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// capture is one direction of a connection as sent over the wire. The folder testdata/captures has connections between real clients
// and RabbitMQ 3.10.
type capture struct {
	name   string
	frames []Frame
	bytes  []byte
}

func captures(tb testing.TB) []capture {
	tb.Helper()
	paths, err := filepath.Glob("testdata/captures/*")
	if err != nil || len(paths) == 0 {
		tb.Fatalf("no captures, error %v", err)
	}
	var all []capture
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			tb.Fatal(err)
		}
		b = bytes.TrimPrefix(b, []byte(ProtocolHeader))
		all = append(all, capture{name: filepath.Base(path), frames: framesOf(tb, path, b), bytes: b})
	}
	return all
}

func framesOf(tb testing.TB, name string, b []byte) []Frame {
	tb.Helper()
	var frames []Frame
	for len(b) > 0 {
		f, n, err := NextFrame(b, 131072)
		if n == 0 || err != nil {
			tb.Fatalf("%s: frame %d: took %d, error %v", name, len(frames), n, err)
		}
		frames, b = append(frames, f), b[n:]
	}
	return frames
}

// Captured bytes of real peers can be decoded and encoded again byte for byte.
func TestCapturesSurvive(t *testing.T) {
	for _, c := range captures(t) {
		var out []byte
		for _, f := range c.frames {
			switch f.Type {
			case FrameMethod:
				m, err := ParseMethod(f.Payload)
				if err != nil {
					t.Fatalf("%s: %v", c.name, err)
				}
				out = AppendMethod(out, f.Channel, m)
			case FrameHeader:
				h, err := ParseContentHeader(f.Payload)
				if err != nil {
					t.Fatalf("%s: %v", c.name, err)
				}
				p, err := ParseProperties(h.Props)
				if err != nil {
					t.Fatalf("%s: %v", c.name, err)
				}
				out = AppendContentHeader(out, f.Channel, h.BodySize, p.Append(nil))
			case FrameBody:
				out = AppendBody(out, f.Channel, f.Payload, 131072)
			case FrameHeartbeat:
				out = AppendHeartbeat(out)
			}
		}
		if !bytes.Equal(out, c.bytes) {
			t.Errorf("%s: %d bytes became %d", c.name, len(c.bytes), len(out))
		}
	}
}

// RabbitMQ's own x-death, as sent to a consumer.
func TestCapturedDeathHeader(t *testing.T) {
	var found int
	for _, c := range captures(t) {
		for _, f := range c.frames {
			if f.Type != FrameHeader || !strings.HasSuffix(c.name, ".server") {
				continue
			}
			h, _ := ParseContentHeader(f.Payload)
			p, _ := ParseProperties(h.Props)
			v, ok := p.Headers.Lookup("x-death")
			if !ok {
				continue
			}
			found++
			var keys []string
			for _, field := range v.(Array)[0].(Table) {
				keys = append(keys, field.Key)
			}
			got := strings.Join(keys, " ")
			if !strings.HasPrefix(got, "count reason queue time exchange routing-keys") {
				t.Errorf("%s: got fields %s", c.name, got)
			}
		}
	}
	if found == 0 {
		t.Error("no x-death in any capture")
	}
}
