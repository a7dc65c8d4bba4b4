package session

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// registry is a fake of the registry as seen by a node: the node learns something when it is asked to refresh.
type registry struct {
	calls atomic.Int64
	learn func() // at the first call; nil means nothing
}

func (r *registry) fresh(context.Context) error {
	if r.calls.Add(1) == 1 && r.learn != nil {
		r.learn()
	}
	return nil
}

func TestLoginAsksTheRegistry(t *testing.T) {
	anna := auth.Account{Name: "anna"}
	tests := []struct {
		name, response string
		learns         bool
		accepted       bool
		calls          int64
	}{
		{"a user that was made at another node", "\x00anna\x00secret", true, true, 1},
		{"the wrong password of such a user", "\x00anna\x00guess", true, false, 1},
		{"nobody", "\x00anna\x00secret", false, false, 1},
		{"no password", "\x00anna\x00", true, false, 0},
		{"a user that is known", "\x00guest\x00guest", true, true, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := &registry{}
			p := newProbe(t, changingUsers, func(o *Options) { o.Fresh = r.fresh })
			users := p.conn.srv.Users
			hash, err := users.Hash("secret")
			if err != nil {
				t.Fatal(err)
			}
			if anna.Password = hash; tt.learns {
				r.learn = func() {
					if _, err := users.Set(anna); err != nil {
						t.Error(err)
					}
				}
			}
			m := startOK("authentication_failure_close")
			m.Response = tt.response
			p.start().send(0, m)
			if tt.accepted {
				expect[*amqp.ConnectionTune](p, 0)
			} else {
				p.refused(403, "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile.")
			}
			if got := r.calls.Load(); got != tt.calls {
				t.Errorf("the registry was asked %d times, want %d", got, tt.calls)
			}
		})
	}
}

// A certificate may name a user that another node added a moment ago: the registry is asked once, as for a password.
func TestCertificateLoginAsksTheRegistry(t *testing.T) {
	for _, tt := range []struct {
		name, user       string
		learns, accepted bool
		calls            int64
	}{
		{"a user that was made at another node", "anna", true, true, 1},
		{"another user than that", "berta", true, false, 1},
		{"nobody", "anna", false, false, 1},
		{"a certificate without a name", "", true, false, 0},
		{"guest from elsewhere", "guest", true, false, 0},
		{"a user that is known", "known", true, true, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &registry{}
			s := testServer(t, changingUsers, func(o *Options) {
				o.Fresh, o.CertificateLogin, o.GuestLoopbackOnly = r.fresh, auth.CertificateLogin{Field: auth.CommonName}, true
			})
			add := func(name string) {
				if _, err := s.Users.Set(auth.Account{Name: name}); err != nil {
					t.Error(err)
				}
			}
			if add("known"); tt.learns {
				r.learn = func() { add("anna") }
			}
			subject, err := asn1.Marshal(pkix.Name{CommonName: tt.user}.ToRDNSequence())
			if err != nil {
				t.Fatal(err)
			}
			p := probeOf(t, s, Peer{Address: "192.0.2.1:4711", Certificate: func() *x509.Certificate { return &x509.Certificate{RawSubject: subject} }})
			m := startOK("authentication_failure_close")
			m.Mechanism, m.Response = auth.External, ""
			p.start().send(0, m)
			if tt.accepted {
				expect[*amqp.ConnectionTune](p, 0)
			} else {
				p.refused(403, "ACCESS_REFUSED - Login was refused using authentication mechanism EXTERNAL. For details see the broker logfile.")
			}
			if got := r.calls.Load(); got != tt.calls {
				t.Errorf("the registry was asked %d times, want %d", got, tt.calls)
			}
		})
	}
}

// Callers that ask the registry during a call share the next answer, so that many failed logins cause few calls.
func TestBarrierIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := barrier{turn: make(chan struct{}, 1)}
		var calls atomic.Int64
		ask := func(ctx context.Context) error {
			calls.Add(1)
			select {
			case <-time.After(time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		var failed atomic.Int64
		given, giveUp := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer giveUp()
		go func() {
			if b.wait(given, ask) != nil {
				failed.Add(1)
			}
		}()
		synctest.Wait()
		for range 100 {
			go func() {
				if b.wait(t.Context(), ask) != nil {
					failed.Add(1)
				}
			}()
		}
		start := time.Now()
		time.Sleep(600 * time.Millisecond) // the first has given up by then, which is nobody else's
		synctest.Wait()
		if err := b.wait(t.Context(), ask); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != 2500*time.Millisecond || calls.Load() != 3 || failed.Load() != 1 {
			t.Errorf("102 callers asked %d times in %v, %d failed: want 3 times, 2.5 s, one", calls.Load(), took, failed.Load())
		}
	})
}

// changingUsers gives a server users of its own, because the test changes them.
func changingUsers(o *Options) {
	users := auth.New(auth.Options{Hashing: auth.SHA256})
	if err := users.CreateDefaults(); err != nil {
		panic(err)
	}
	o.Users = users
}

// homed makes a server a node of a cluster. here may change.
func homed(here *bool, owner wlog.NodeID, r *registry) func(*Options) {
	return func(o *Options) {
		vhosts := o.VHosts
		o.Home = func(name string) (Home, bool) {
			_, ok := vhosts(name)
			return Home{Here: *here, Owner: owner}, ok
		}
		o.VHosts = func(name string) (*vhost.VHost, bool) {
			if !*here {
				return nil, false
			}
			return vhosts(name)
		}
		if r != nil {
			o.Fresh = r.fresh
		}
	}
}

// A connection whose vhost is elsewhere waits, and its client's further input waits with it.
func TestElsewhere(t *testing.T) {
	here := false
	p := newProbe(t, homed(&here, 2, nil)).login().tune()
	p.send(0, &amqp.ConnectionOpen{VirtualHost: "/"})
	p.send(1, &amqp.ChannelOpen{})
	p.silent()
	p.state(Elsewhere)
	h := p.conn.Handover()
	if h.User != "guest" || h.VHost != "/" || h.ChannelMax != 2047 || h.FrameMax != 131072 || h.Mechanism != "PLAIN" {
		t.Errorf("handed over: %+v", h)
	}
	p.conn.OpenHere(p.now) // it is not here
	p.state(Elsewhere)
	here = true
	p.conn.OpenHere(p.now)
	p.state(Open)
	p.feed(nil)
	expect[*amqp.ConnectionOpenOK](p, 0)
	expect[*amqp.ChannelOpenOK](p, 1)
	if got := p.conn.srv.openConns.Load(); got != 1 {
		t.Errorf("%d connections count, want 1", got)
	}
}

// A user that was set again between its login and connection.open was refused by the owner of the vhost as if its password were a different one.
func TestHandoverOfAUserSetAgain(t *testing.T) {
	for _, tt := range []struct {
		name          string
		before, after func(p *probe) // the handover; it was refused
		state         State
	}{
		{name: "set again before", before: (*probe).setGuest, state: Closing},
		{name: "set again after", after: (*probe).setGuest, state: Elsewhere},
		{name: "set again elsewhere", after: func(p *probe) { p.conn.srv.Fresh = (&registry{}).fresh }, state: Elsewhere},
		{name: "deleted", after: (*probe).deleteGuest, state: Closing},
		{name: "deleted and added", after: func(p *probe) { p.deleteGuest(); p.setGuest() }, state: Closing},
	} {
		t.Run(tt.name, func(t *testing.T) {
			here := false
			p := newProbe(t, changingUsers, homed(&here, 2, nil)).login().tune()
			p.send(0, &amqp.ConnectionOpen{VirtualHost: "/"})
			if tt.before != nil {
				tt.before(p)
			}
			h := p.conn.Handover()
			if _, known := p.conn.srv.Users.LoggedIn(h.User, h.Account); !known {
				t.Error("the handover names a password that the user has no longer")
			}
			if tt.after != nil {
				tt.after(p)
			}
			p.conn.Refuse(p.now, errOtherAccount("guest"), h)
			p.state(tt.state)
			if tt.state == Elsewhere && tt.name == "set again elsewhere" && !p.conn.Outdated() {
				t.Error("the registry is not asked")
			}
		})
	}
}

func (p *probe) setGuest() {
	p.t.Helper()
	users := p.conn.srv.Users
	h, err := users.Hash("guest")
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := users.Set(auth.Account{Name: "guest", Password: h}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *probe) deleteGuest() {
	p.t.Helper()
	if _, err := p.conn.srv.Users.Delete("guest"); err != nil {
		p.t.Fatal(err)
	}
}

func TestUnknownVHost(t *testing.T) {
	here := true
	newProbe(t, homed(&here, 1, nil)).login().tune().openRefused("nope", 530, "NOT_ALLOWED - vhost nope not found")
	r := &registry{}
	p := newProbe(t, homed(&here, 1, r)).login().tune()
	p.send(0, &amqp.ConnectionOpen{VirtualHost: "nope"})
	p.state(Elsewhere)
	if !p.conn.Outdated() || p.conn.Outdated() {
		t.Error("the registry is to be asked once")
	}
}

func (p *probe) openRefused(name string, code uint16, text string) {
	p.t.Helper()
	p.send(0, &amqp.ConnectionOpen{VirtualHost: name})
	p.refused(code, text)
}

// A permission that was granted at another node counts after the registry was asked. A permission that was never granted is refused then.
func TestOutdatedPermission(t *testing.T) {
	for _, given := range []bool{true, false} {
		here := true
		p := newProbe(t, changingUsers, homed(&here, 1, &registry{})).login().tune()
		p.send(0, &amqp.ConnectionOpen{VirtualHost: "other"})
		p.state(Elsewhere)
		if !p.conn.Outdated() {
			t.Fatal("the registry is not asked")
		}
		if given {
			grant(t, p.conn.srv.Users, "other")
		}
		p.conn.OpenHere(p.now)
		p.feed(nil)
		if given {
			expect[*amqp.ConnectionOpenOK](p, 0)
		} else {
			p.refused(530, "NOT_ALLOWED - access to vhost 'other' refused for user 'guest'")
		}
	}
}

func grant(t *testing.T, users *auth.Store, name string) {
	t.Helper()
	if _, err := users.SetPermissions(auth.Grant{User: "guest", VHost: name, Permissions: auth.Permissions{Configure: ".*", Write: ".*", Read: ".*"}}); err != nil {
		t.Fatal(err)
	}
}

// handed returns the handover that a front would send for guest.
func handed(s *Server, change ...func(*Handover)) *Handover {
	u, err := s.Users.Login(context.Background(), "PLAIN", "\x00guest\x00guest", auth.Origin{Host: "test", Loopback: true})
	if err != nil {
		panic(err)
	}
	h := &Handover{
		Peer: Peer{Address: "192.0.2.9:1", Local: "192.0.2.8:5672"}, User: "guest", Account: s.Users.AccountOf(u),
		Mechanism: "PLAIN", ChannelMax: 10, FrameMax: 4096, VHost: "/", Applied: 7,
	}
	for _, f := range change {
		f(h)
	}
	return h
}

func TestAdopt(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Handover)
		learn  func(t *testing.T, s *Server) // when the registry is asked
		here   bool
		want   string // error; "" means that it is adopted
	}{
		{name: "adopted", here: true},
		{name: "elsewhere", want: errTryAgain.Error()},
		{name: "no such vhost", here: true, change: func(h *Handover) { h.VHost = "nope" }, want: "NOT_ALLOWED - vhost nope not found"},
		{
			name: "another account", here: true, change: func(h *Handover) { h.Account++ },
			want: "NOT_ALLOWED - user 'guest' is deleted, or has another password",
		},
		{
			name: "no permission", here: true, change: func(h *Handover) { h.VHost = "other" },
			want: "NOT_ALLOWED - access to vhost 'other' refused for user 'guest'",
		},
		{
			name: "a permission that was given elsewhere", here: true, change: func(h *Handover) { h.VHost = "other" },
			learn: func(t *testing.T, s *Server) { t.Helper(); grant(t, s.Users, "other") },
		},
		{name: "a registry that does not come", here: true, change: func(h *Handover) { h.Applied = 8 }, want: errTryAgain.Error() + "\nbehind"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := &registry{}
			s := testServer(t, changingUsers, homed(&tt.here, 1, r), func(o *Options) {
				o.WaitApplied = func(_ context.Context, index wlog.Index) error {
					if index > 7 {
						return errors.New("behind")
					}
					return nil
				}
			})
			if tt.learn != nil {
				r.learn = func() { tt.learn(t, s) }
			}
			var change []func(*Handover)
			if tt.change != nil {
				change = append(change, tt.change)
			}
			c, err := s.Adopt(t.Context(), 1, handed(s, change...), Front{Node: 3}, func() {})
			if tt.want != "" {
				if err == nil || err.Error() != tt.want {
					t.Errorf("got %v, want %s", err, tt.want)
				}
				if n := s.openConns.Load(); n != 0 {
					t.Errorf("%d connections count after a refusal", n)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			p := &probe{t: t, conn: c, now: 1}
			p.feed(nil)
			expect[*amqp.ConnectionOpenOK](p, 0)
			p.channel(1)
			if i := c.Info(); i.Front != 3 || i.Peer.Address != "192.0.2.9:1" || i.FrameMax != 4096 || i.User != "guest" {
				t.Errorf("listed as %+v", i)
			}
			c.Release(1)
			if n := s.openConns.Load(); n != 0 {
				t.Errorf("%d connections are left", n)
			}
		})
	}
}

// Instants of a vhost use the vhost's clock. A connection adds the difference to the time that it is given, and subtracts it from the time at
// which it wants to be called. Leases end at the same moment in both clocks.
func TestVHostTime(t *testing.T) {
	for _, offset := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(offset.String(), func(t *testing.T) {
			withLeases(t, func(p *leaseProbe) {
				p.queue(1, "q", "x-delivery-lease", int32(1000))
				p.consume(1, "q", "c")
				p.publish(2, bodies("q", "1", "2")...)
				p.delivers(1, "c1:1 c2:2")
				p.wait(900 * time.Millisecond)
				p.publish(1, extension(int64(1), int32(1000)))
				p.wait(100*time.Millisecond - 1)
				p.silent()
				p.wait(1)
				p.delivers(1, "c3:2*")
				p.send(1, &amqp.BasicAck{DeliveryTag: 3})
				p.wait(900*time.Millisecond - 1)
				p.silent()
				p.wait(1)
				p.delivers(1, "c4:1*")
				if opened := p.conn.Info().Opened; opened != 1 {
					t.Errorf("the connection is listed as opened at %d, want the node's time, 1", opened)
				}
			}, func(o *Options) {
				now := clock.New()
				shifted := func() hook.Instant { return now().Add(offset) }
				v := vhost.New(vhost.Config{Name: "/", Chain: withPlugin(t, expirations{}), Clock: shifted, Offset: offset, Log: discard()})
				o.VHosts = func(string) (*vhost.VHost, bool) { return v, true }
			})
		})
	}
}

// If a vhost has begun to move to another node, but the table of vhosts does not reflect that yet, the connection waits. Neither the vhost's client
// nor a connection handed over by a front is refused.
func TestOpenWhileMoving(t *testing.T) {
	here := true
	p := newProbe(t, homed(&here, 1, nil)).login().tune()
	v, _ := p.conn.srv.VHosts("/")
	v.Move("vhost '/' is not served by this node any more")
	p.send(0, &amqp.ConnectionOpen{VirtualHost: "/"})
	p.silent()
	p.state(Elsewhere)
	if _, err := p.conn.srv.Adopt(t.Context(), 1, handed(p.conn.srv), Front{Node: 3}, func() {}); !errors.Is(err, errTryAgain) {
		t.Errorf("got %v, want %v", err, errTryAgain)
	}
}
