package session

import (
	"errors"
	"sync"
	"testing"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// defaultUsers are shared by the tests: hashing passwords is slow on purpose.
var defaultUsers = sync.OnceValues(func() (*auth.Store, error) {
	users := auth.New(auth.Options{Hashing: auth.SHA256}) // not 600,000 rounds for each wrong password
	return users, users.CreateDefaults()
})

// testServer returns a server with the plugin expirations, with the vhosts "/" and "other", and guest who may use the first.
func testServer(tb testing.TB, change ...func(*Options)) *Server {
	tb.Helper()
	users, err := defaultUsers()
	if err != nil {
		tb.Fatal(err)
	}
	clock := clock.New()
	vhosts := map[string]*vhost.VHost{}
	for _, name := range []string{"/", "other"} {
		vhosts[name] = vhost.New(vhost.Config{Name: name, Chain: withPlugin(tb, expirations{}), Clock: clock, Log: discard()})
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

// expirations is a plugin that reads the expiration property, any but "foobar", and names an exchange in an argument.
type expirations struct{ hook.NoHooks }

func (expirations) Arguments() []hook.Argument {
	return []hook.Argument{{Name: "x-dead-letter-exchange", NamesExchange: true}}
}

func (expirations) CheckExpiration(raw []byte) (hook.Limit, error) {
	if string(raw) == "foobar" {
		return 0, errors.New("no_integer")
	}
	return hook.LimitOf(1), nil
}

func withPlugin(tb testing.TB, p hook.Plugin) *chain.Chain {
	tb.Helper()
	c, err := chain.New([]chain.Named{{Name: "plugin", Plugin: p}}, chain.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}
