package wire

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// The number of connections in the handshake is limited; silent sockets used to be unlimited. At the limit the oldest connection is closed, so
// that a client that logs in as usual gets in.
func TestTooManyHandshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := make(lines, 100)
		s := newServer(t, func(o *Options) {
			o.Handshakes, o.Session.Log = 3, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		})
		old := dial(t, s).open(0)
		var mute []*client
		for range 10 {
			mute = append(mute, dial(t, s))
			time.Sleep(time.Millisecond)
		}
		late := dial(t, s).open(0)
		synctest.Wait()
		if n := s.Connections(); n != 4 {
			t.Errorf("%d connections, want two that are open and two in the handshake", n)
		}
		for _, c := range mute[:8] {
			c.ended()
		}
		said := 0
		for len(log) > 0 {
			if strings.Contains(<-log, "too many connections in the handshake") {
				said++
			}
		}
		if said != 1 {
			t.Errorf("it was said %d times, want once", said)
		}
		late.channel().close()
		old.channel().close()
		time.Sleep(11 * time.Second)
		if n := s.Connections(); n != 0 {
			t.Errorf("%d connections are left", n)
		}
		if h := &s.handshakes; len(h.open)+len(h.bySource) != 0 {
			t.Errorf("%d handshakes of %d sources are left", len(h.open), len(h.bySource))
		}
	})
}

// A connection that was denied without an answer, and then crowded out, kept memory and goroutines for three more seconds. There were as many
// of them as there are failed logins in three seconds, whatever the limit.
func TestRefusedMakePlaceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, func(o *Options) { o.Handshakes = 3 })
		for range 20 {
			c := dial(t, s)
			c.write([]byte(amqp.ProtocolHeader))
			expectMethod[*amqp.ConnectionStart](c)
			c.send(0, &amqp.ConnectionStartOK{Mechanism: "PLAIN", Response: "nonsense"})
			synctest.Wait()
		}
		if n := s.Connections(); n != 3 {
			t.Errorf("%d connections, the limit is 3", n)
		}
	})
}

// A source with many handshakes crowds out its own connections.
func TestHandshakesAreFair(t *testing.T) {
	from := func(address string) *conn { return &conn{source: netip.MustParsePrefix(address)} }
	h := handshakes{most: 4}
	honest := from("192.0.2.1/32")
	if h.enter(honest) != nil {
		t.Fatal("crowded out at once")
	}
	for n := range 20 {
		c := from("2001:db8::/64")
		if gone := h.enter(c); gone == honest || (gone != nil) != (n >= 3) {
			t.Fatalf("handshake %d crowds out %+v", n, gone)
		}
	}
	h.leave(honest)
	h.leave(honest)
	if len(h.open) != 3 || len(h.bySource) != 1 {
		t.Errorf("left are %d of %d sources", len(h.open), len(h.bySource))
	}
	if n := h.count(hook.Instant(time.Hour)) + h.count(hook.Instant(time.Hour)) + h.count(hook.Instant(time.Hour+logInterval)); n != 1+0+2 {
		t.Errorf("said %d", n)
	}
}
