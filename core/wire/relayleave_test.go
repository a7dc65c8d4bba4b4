package wire

import (
	"crypto/tls"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
)

// An owner that has lost a vhost without closing its connections has half a second from then on. Further news about owners used to restart that
// time.
func TestRelayLeavesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		full, owner := fullDial(t)
		p.setDial(nil, full)
		c := dial(t, p.front).open(0)
		defer (<-owner).Close()
		synctest.Wait()
		began := time.Now()
		ended := make(chan time.Duration, 1)
		go func() {
			c.told(amqp.ReplyConnectionForced, gone)
			ended <- time.Since(began)
		}()
		for range 10 {
			p.move(3)
			time.Sleep(brokenFor * 3 / 5)
		}
		if took := <-ended; took != brokenFor {
			t.Errorf("the client was told after %v, want %v", took, brokenFor)
		}
		c.answer()
	})
}

// A front that ends sends no TLS close notification: TLS waits five seconds for an owner that reads nothing.
func TestRelayLeavesWithoutFarewell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		a := newAuthority(t)
		certificates, err := LoadCertificates(a.server("broker"))
		if err != nil {
			t.Fatal(err)
		}
		server, client := certificates.Config().Clone(), a.client("")
		server.SessionTicketsDisabled, client.ServerName = true, "127.0.0.1"
		secure := tls.Client(near, client)
		go func() {
			if err := tls.Server(far, server).Handshake(); err != nil {
				t.Error(err)
			}
		}()
		if err := secure.Handshake(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // nobody reads at the far end any more
		wantElapsed(t, 0, (&relay{owner: secure}).leave)
	})
}
