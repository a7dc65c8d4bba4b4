package peer

import (
	"bytes"
	"encoding/binary"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// intruder opens a message stream as node 2, to send frames that no node sends.
func intruder(t *testing.T, f *fabric, to *testNode, kind Kind) net.Conn {
	t.Helper()
	to.Connect([]Node{nodeOf(2)})
	conn, err := f.Dial(t.Context(), to.node.Address)
	if err != nil {
		t.Fatal(err)
	}
	nonce := newNonce()
	h := Hello{Kind: kind, Protocol: protocol, Format: Range{1, 1}, Node: 2, Address: nodeOf(2).Address, Name: "test", Shards: 3}
	if err := writeGreeting(conn, &greeting{Hello: &h, Nonce: nonce}); err != nil {
		t.Fatal(err)
	}
	g, err := readGreeting(conn)
	if err != nil || g.Refused != "" {
		t.Fatalf("refused: %+v, %v", g, err)
	}
	if err := writeGreeting(conn, &greeting{Repeats: g.Nonce}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait() // it counts as a stream now
	return conn
}

func frameOf(typ byte, body string) []byte {
	var head [frameHead]byte
	putHead(&head, typ, 1, []byte(body), true)
	return append(head[:], body...)
}

// A stream that brings an invalid frame is closed and logged with the reason, and has no other effect.
func TestHostileFrames(t *testing.T) {
	large := frameOf(frameMessage, "x")
	binary.LittleEndian.PutUint32(large, 1<<31)
	changed := frameOf(frameMessage, "the body")
	changed[len(changed)-1]++
	head := frameOf(frameMessage, "the body")
	head[9]++
	for _, tc := range []struct {
		name  string
		kind  Kind
		bytes []byte
		want  string
	}{
		{"oversized", Bulk, large, "a frame of 2147483648 bytes: at most 75497472 are allowed"},
		{"oversized, on the stream for small ones", Small, frameOf(frameMessage, strings.Repeat("x", maxSmall+1)), "a frame of 1048577 bytes: at most 1048576 are allowed"},
		{"changed body", Bulk, changed, "was changed on the way"},
		{"changed head", Bulk, head, "was changed on the way"},
		{"unknown type", Bulk, frameOf(9, ""), "a frame of unknown type 9, expected 1 to 3"},
		{"type 0", Bulk, frameOf(0, ""), "a frame of unknown type 0, expected 1 to 3"},
		{"an answer that was not asked for", Small, frameOf(framePong, strings.Repeat("x", pongSize)), "a frame of type 3, which this side does not take"},
		{"a short ping", Small, frameOf(framePing, "short"), "a ping of 5 bytes"},
		{"a ping that lies", Small, frameOf(framePing, "12345678\xff\xff"), "a ping of 65535 shards"},
		{"http", Bulk, []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "a frame of unknown type"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFabric()
				one := f.node(t, 1)
				conn := intruder(t, f, one, tc.kind)
				go func() { _, _ = conn.Write(tc.bytes) }() // until the other side closes it
				if _, err := conn.Read(make([]byte, 1)); err == nil {
					t.Error("the stream was answered")
				}
				conn.Close()
				synctest.Wait()
				if got := one.received(); len(got) > 0 {
					t.Errorf("got %q", got)
				}
				one.wantLog(t, tc.want)
				f.close()
			})
		})
	}
}

// A stream that ends in the middle of a message delivers nothing of it.
func TestResetInAFrame(t *testing.T) {
	whole := frameOf(frameMessage, "the body")
	for n := range len(whole) + 1 {
		synctest.Test(t, func(t *testing.T) {
			f := newFabric()
			one := f.node(t, 1)
			conn := intruder(t, f, one, Bulk)
			if _, err := conn.Write(whole[:n]); err != nil {
				t.Fatal(err)
			}
			conn.Close()
			synctest.Wait()
			if got := len(one.received()); (got == 1) != (n == len(whole)) {
				t.Errorf("after %d of %d bytes: %d messages", n, len(whole), got)
			}
			f.close()
		})
	}
}

// A stream that stops in the middle of a message is closed after a while, as is one on which nothing arrives at all.
func TestStalledStream(t *testing.T) {
	for _, sent := range [][]byte{nil, frameOf(frameMessage, "the body")[:20]} {
		synctest.Test(t, func(t *testing.T) {
			f := newFabric()
			one := f.node(t, 1)
			conn := intruder(t, f, one, Bulk)
			if _, err := conn.Write(sent); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			if _, err := conn.Read(make([]byte, 1)); err == nil || time.Since(begin) != idle {
				t.Errorf("%v after %v, want the end after %v", err, time.Since(begin), idle)
			}
			conn.Close()
			f.close()
		})
	}
}

// When a node connects again, its new stream replaces the old one.
func TestNewerStreamReplacesOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		one := f.node(t, 1)
		older := intruder(t, f, one, Bulk)
		newer := intruder(t, f, one, Bulk)
		if _, err := newer.Write(frameOf(frameMessage, "new")); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if _, err := older.Read(make([]byte, 1)); err == nil || time.Since(begin) != 0 {
			t.Errorf("the older stream: %v after %v", err, time.Since(begin))
		}
		synctest.Wait()
		if got := one.received(); !slices.Equal(got, []string{"2/1 new"}) {
			t.Errorf("got %q", got)
		}
		older.Close()
		newer.Close()
		f.close()
	})
}

func TestPingRoundTrip(t *testing.T) {
	for _, times := range [][]ShardTime{nil, {{0, 5}}, {{1, 1 << 60}, {255, -1}}} {
		for _, short := range [][]uint32{nil, {7}, {0, 255}} {
			got, err := parsePing(appendPing(nil, ping{77, times, short}))
			if err != nil || got.sent != 77 || !slices.Equal(got.times, times) || !slices.Equal(got.short, short) {
				t.Errorf("got %+v, %v, want %v, %v", got, err, times, short)
			}
		}
	}
	for _, bad := range [][]byte{nil, make([]byte, 9), {10: 1}, {14: 0, 8: 1}, {12: 0}} {
		if _, err := parsePing(bad); err == nil {
			t.Errorf("%x is a ping", bad)
		}
	}
	sent, now, err := parsePong(appendPong(nil, 3, 4))
	if err != nil || sent != 3 || now != 4 {
		t.Errorf("got %d, %d, %v", sent, now, err)
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(slices.Concat(frameOf(frameMessage, "body"), frameOf(framePing, "12345678\x00\x00"), frameOf(framePong, strings.Repeat("x", 16))), true)
	f.Add(appendPing(nil, ping{times: []ShardTime{{1, hook.Instant(2)}}, short: []uint32{3}}), false)
	f.Fuzz(func(t *testing.T, input []byte, checked bool) {
		r := newFrameReader(bytes.NewReader(input), 1<<16, checked)
		for {
			got, err := r.next()
			if err != nil {
				return
			}
			if len(got.body) > 1<<16 {
				t.Fatalf("a body of %d bytes", len(got.body))
			}
			if p, err := parsePing(got.body); err == nil && !bytes.Equal(appendPing(nil, p), got.body) {
				t.Fatalf("ping %x becomes %+v", got.body, p)
			}
			_, _, _ = parsePong(got.body)
		}
	})
}
