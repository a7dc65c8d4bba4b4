package policies

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/plugins/deadletter"
	"github.com/curfewmq/curfew/plugins/expires"
	"github.com/curfewmq/curfew/plugins/maxlength"
	"github.com/curfewmq/curfew/plugins/retry"
	"github.com/curfewmq/curfew/plugins/ttl"
	"github.com/curfewmq/curfew/sdk/hook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rabbitMQ knows all keys of RabbitMQ, those of our plugins included.
var rabbitMQ = NewRules(declared(), nil)

// declared returns the arguments that our plugins declare.
func declared() []hook.Argument {
	var all []hook.Argument
	for _, f := range []hook.Factory{ttl.Factory, maxlength.Factory, deadletter.Factory, expires.Factory, retry.Factory} {
		p, _, err := f.New(func(any) error { return nil })
		if err != nil {
			panic(err)
		}
		all = append(all, p.Arguments()...)
	}
	return all
}
