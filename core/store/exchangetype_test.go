package store

import (
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

// everywhere is a plugin with an exchange type that leads each message everywhere, and its router.
type everywhere struct{ hook.NoHooks }

func (everywhere) ExchangeTypes() []hook.ExchangeType {
	return []hook.ExchangeType{{Name: "x-everywhere", New: func(*hook.Exchange) hook.Router { return &all{} }}}
}

type all struct{ to []hook.Destination }

func (r *all) Bind(b *hook.Binding) { r.to = append(r.to, b.Destination) }
func (*all) Unbind(*hook.Binding)   {}
func (r *all) Route(_ *hook.Publishing, dst []hook.Destination) []hook.Destination {
	return append(dst, r.to...)
}

// A broker without a plugin starts with the plugin's exchanges, says which types are missing, and keeps all for the next start.
func TestPluginIsGoneAndBack(t *testing.T) {
	disk := crashfs.New(1)
	with := func(o *Options) {
		var err error
		o.Chain, err = chain.New([]chain.Named{{Name: "everywhere", Plugin: everywhere{}}}, chain.Options{})
		must(t, err)
	}
	const warning = "no plugin of the chain offers an exchange type"
	k := open(t, disk, with)
	k.declare("q")
	for _, name := range []string{"x", "y"} {
		must(t, k.v.DeclareExchange(vhost.Exchange{Name: name, Type: "x-everywhere", Durable: true}, nil))
		must(t, k.v.Bind(vhost.Binding{Source: name, Destination: "q"}, 0))
	}
	k.close()

	k = open(t, disk)
	if got := k.log.Find(warning); !strings.HasSuffix(got, "type=x-everywhere exchanges=2") {
		t.Errorf("logged: %q", got)
	}
	if _, _, err := k.v.Route("x", &parts.Message{}, nil); err == nil {
		t.Error("an exchange of the missing type routes")
	}
	k.close()

	k = open(t, disk, with)
	defer k.end()
	if got := k.log.Find(warning); got != "" {
		t.Errorf("logged with the plugin back: %q", got)
	}
	queues, _, err := k.v.Route("x", &parts.Message{}, nil)
	must(t, err)
	if len(queues) != 1 || len(k.ExchangeTypes()) != 1 {
		t.Errorf("routes to %d queues, %d types", len(queues), len(k.ExchangeTypes()))
	}
}
