package session

import (
	"sync"
	"testing"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/vhost"
)

// defaultUsers are shared by the tests: hashing passwords is slow on purpose.
var defaultUsers = sync.OnceValues(func() (*auth.Store, error) {
	users := auth.New(auth.Options{})
	return users, users.CreateDefaults()
})

// testServer returns a server without plugins, with the vhosts "/" and "other", and guest who may use the first.
func testServer(tb testing.TB, change ...func(*Options)) *Server {
	tb.Helper()
	users, err := defaultUsers()
	if err != nil {
		tb.Fatal(err)
	}
	clock := clock.New()
	vhosts := map[string]*vhost.VHost{}
	for _, name := range []string{"/", "other"} {
		vhosts[name] = vhost.New(vhost.Config{Name: name, Chain: noPlugins(tb), Clock: clock, Log: discard()})
	}
	o := Options{
		Product: "Curfew", Version: "1.0.0", ClusterName: "test",
		Users: users, VHosts: func(name string) (*vhost.VHost, bool) { v, ok := vhosts[name]; return v, ok },
		ChannelMax: 2047, FrameMax: 131072, Heartbeat: 60, MessageMax: 16 << 20,
		Log: discard(),
	}
	for _, f := range change {
		f(&o)
	}
	return NewServer(o)
}

func noPlugins(tb testing.TB) *chain.Chain {
	tb.Helper()
	c, err := chain.New(nil, chain.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}
