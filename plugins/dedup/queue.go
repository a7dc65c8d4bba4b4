package dedup

import (
	"sync"

	"github.com/curfewmq/curfew/sdk/hook"
)

// queues holds the keys of the messages in each queue that has such messages. A queue keeps them when its settings change. Any goroutine
// may use it.
type queues struct {
	mu   sync.Mutex // guards keys
	keys map[hook.Queue]*cache
}

func (*plugin) Arguments() []hook.Argument {
	return []hook.Argument{
		{Name: dedupArgument, Check: checkQueueEnabled, Policy: &enabledKey},
		{Name: headerArgument, Check: checkQueueHeader},
		// RabbitMQ's plugin uses the argument's full name as its policy key.
		{Name: "x-" + dedupArgument, Check: checkQueueEnabled, Policy: &enabledKey},
	}
}

var enabledKey = hook.PolicyKey{Check: func(v any) error {
	if _, ok := v.(bool); !ok {
		return &hook.InvalidError{What: "message deduplication, expected a boolean"}
	}
	return nil
}}

func checkQueueEnabled(v any, _ hook.Args) error {
	if _, ok := v.(bool); !ok {
		return &hook.ArgError{Term: `"expected boolean, got ` + hook.TypeName(v) + `"`}
	}
	return nil
}

func checkQueueHeader(v any, _ hook.Args) error {
	if err := hook.CheckString(v); err != nil {
		return err
	}
	if s, _ := v.(string); s == "" || len(s) > maxHeader {
		return &hook.ArgError{Term: `"expected 1 to 255 bytes"`}
	}
	return nil
}

func (p *plugin) Attach(q hook.Queue) hook.Hooks {
	if !isOn(q, "message-deduplication") && !isOn(q, dedupArgument) {
		return hook.Hooks{Shared: true}
	}
	a := &attachment{plugin: p, queue: q, header: defaultHeader, keys: p.queues.find(q)}
	if s, ok := hook.StringSetting(q, "deduplication-header"); ok {
		a.header = s
	}
	return hook.Hooks{OnEnqueue: a.enqueue, OnGone: a.gone, OnStay: a.stay}
}

func isOn(q hook.Queue, setting string) bool {
	v, _ := q.Setting(setting)
	on, _ := v.(bool)
	return on
}

// attachment keeps duplicates out of a queue. It belongs to the queue's turn.
type attachment struct {
	plugin *plugin
	queue  hook.Queue
	header string
	keys   *cache // of the messages in the queue; nil until there is one with a key
}

// enqueue drops messages whose key is in the queue, and watches the others.
func (a *attachment) enqueue(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	for i := range ms {
		if vs[i].Action != hook.Keep {
			continue
		}
		k, ok := keyOf(&a.plugin.seeds, &ms[i], a.header)
		if !ok {
			continue
		}
		if a.keys == nil {
			a.keys = a.plugin.newKeys(a.queue)
		}
		if a.keys.admit(now, k, 0) {
			vs[i].Watch = true
			continue
		}
		vs[i].Action, vs[i].Reason, vs[i].Final = hook.Drop, hook.ReasonDuplicate, true
	}
}

// gone forgets the keys of messages that leave.
func (a *attachment) gone(ms []hook.Message) {
	if a.keys == nil {
		return
	}
	if ms == nil {
		a.plugin.queues.remove(a.queue)
		a.keys.clear()
		a.keys = nil
		return
	}
	for i := range ms {
		if k, ok := keyOf(&a.plugin.seeds, &ms[i], a.header); ok {
			a.keys.forget(k)
		}
	}
}

// stay remembers the keys of messages that were about to leave, and stay. If another message has the key by now, this one is not watched:
// the key stays as long as the other message.
func (a *attachment) stay(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	for i := range ms {
		k, ok := keyOf(&a.plugin.seeds, &ms[i], a.header)
		if !ok {
			continue
		}
		if a.keys == nil {
			a.keys = a.plugin.newKeys(a.queue)
		}
		vs[i].Watch = a.keys.admit(now, k, 0)
	}
}

// newKeys returns the keys of a queue that has none yet.
func (p *plugin) newKeys(q hook.Queue) *cache {
	c := p.budget.newCache(maxEntries)
	p.queues.mu.Lock()
	defer p.queues.mu.Unlock()
	p.queues.keys[q] = c
	return c
}

// find returns the keys of a queue; nil = it has none.
func (s *queues) find(q hook.Queue) *cache {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[q]
}

func (s *queues) remove(q hook.Queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.keys, q)
}
