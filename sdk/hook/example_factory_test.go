package hook_test

import (
	"fmt"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// Config is the section plugins.lenient of the configuration.
type Config struct {
	Grace time.Duration `koanf:"grace" doc:"How much longer than its queue's message-ttl a message may wait."`
}

// Factory is the name that curfew build looks for.
var Factory = hook.NewFactory("lenient", Config{Grace: time.Second}, build)

func build(c Config) (hook.Plugin, error) {
	if c.Grace < 0 {
		return nil, fmt.Errorf("grace: %s is out of range; accepted are 0s and more", c.Grace)
	}
	return lenient{c}, nil
}

type lenient struct{ Config }

func (lenient) Arguments() []hook.Argument { return nil }

// Attach reads the queue's settings once, and returns callbacks that need not read
// them again. The settings come from arguments and policies, and are merged.
func (p lenient) Attach(q hook.Queue) hook.Hooks {
	ttl := hook.IntSetting(q, "message-ttl")
	if !ttl.Set() { // TTL 0 is a TTL
		return hook.Hooks{Shared: true} // no callback: such a queue costs nothing
	}
	wait := ttl.N() + p.Grace.Milliseconds()
	return hook.Hooks{Shared: true, OnEnqueue: func(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		for i := range ms {
			if t := ms[i].Enqueued.AddMillis(wait); vs[i].Deadline == 0 || t < vs[i].Deadline {
				vs[i].Deadline = t
			}
		}
	}}
}

// A Factory makes a plugin from its section of the configuration. The broker decodes
// the section over the defaults and refuses unknown keys.
func ExampleNewFactory() {
	for _, section := range []hooktest.Section{
		nil,
		{"grace": "5s"},
		{"grace": "-1s"},
		{"grase": "1s"},
	} {
		_, config, err := Factory.New(section.Decode)
		if err != nil {
			fmt.Println("error:", err)
			continue
		}
		fmt.Println(config)
	}
	// Output:
	// {1s}
	// {5s}
	// error: grace: -1s is out of range; accepted are 0s and more
	// error: grase: unknown key
}

// Attach is asked for the callbacks of each queue, when the queue is declared and
// again when its settings change.
func ExamplePlugin_attach() {
	p, _, err := Factory.New(hooktest.Section{"grace": "2s"}.Decode)
	if err != nil {
		fmt.Println(err)
		return
	}
	plain := p.Attach(hooktest.NewQueue(hooktest.Spec{}))
	fmt.Println("without a TTL:", plain.OnEnqueue != nil)

	hooks := p.Attach(hooktest.NewQueue(hooktest.Spec{Settings: map[string]any{"message-ttl": int32(500)}}))
	vs := make([]hook.Verdict, 1)
	hooks.OnEnqueue(10, hooktest.Messages(hook.Message{Enqueued: 10}), vs)
	fmt.Println("with one:", vs[0].Deadline.Sub(10))
	// Output:
	// without a TTL: false
	// with one: 2.5s
}
