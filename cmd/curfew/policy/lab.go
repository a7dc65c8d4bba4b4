package policy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/curfewmq/curfew/plugins/wasm"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
)

// lab is the broker's host of policies without a broker, with one module in it.
type lab struct {
	host   *wasm.Host
	module []byte
	traced func(m *hook.Message, key, value string) // told what the policy adds to traces; may be nil
}

// underTest is the name of the policy in a lab.
const underTest = "under-test"

// newLab loads a module. Without a list of grants it has them all: what it may do
// in a broker is for the operator to say.
func newLab(module []byte, o wasm.Options, log io.Writer) (*lab, error) {
	p, _, err := wasm.Factory.New(func(any) error { return nil })
	if err != nil {
		return nil, err
	}
	h, ok := p.(*wasm.Host)
	if !ok {
		return nil, fmt.Errorf("the plugin is a %T", p)
	}
	l := &lab{host: h, module: module}
	env := wasm.Env{Log: slog.New(plain{log}), Trace: func(_ string, m *hook.Message, key, value string) {
		if l.traced != nil {
			l.traced(m, key, value)
		}
	}}
	if err := h.Open(env); err != nil {
		return nil, err
	}
	if o.Grants == nil {
		for _, g := range abi.Grants() {
			o.Grants = append(o.Grants, string(g))
		}
	}
	if _, err := h.Load(underTest, module, o); err != nil {
		return nil, errors.Join(withoutName(err), h.Close())
	}
	return l, nil
}

// withoutName takes the name that nobody gave the policy off an error.
func withoutName(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}

func (l *lab) close() error { return l.host.Close() }

// info is what the host knows of the policy.
func (l *lab) info() wasm.Info {
	i, _ := l.host.Info(underTest)
	return i
}

// failures is how often the policy failed, in whichever way.
func (l *lab) failures() (n uint64) {
	for _, k := range l.info().Errors {
		n += k
	}
	return n
}

// attach returns the hooks of a queue that has chosen the policy.
func (l *lab) attach(q *queue) hook.Hooks { return l.host.Attach(q) }

// failed is the error that the policy's failures amount to, nil if there is none.
func (l *lab) failed() error {
	i := l.info()
	if l.failures() == 0 {
		return nil
	}
	text := "the policy failed: " + i.LastError
	if i.Errors["fuel"] > 0 && i.Fuel < wasm.LargeFuel {
		text += "; a policy in a language with a garbage collector, such as Go, needs --fuel large"
	}
	return errors.New(text)
}

// queue is a queue as policies see it.
type queue struct {
	settings map[string]any // by the names that policies have
	vhost    string
	name     string
	kind     string // classic or quorum
	ready    int
	bytes    int64
	unacked  int
	readers  int
}

var _ hook.Queue = (*queue)(nil)

func newQueue() *queue {
	return &queue{settings: map[string]any{}, vhost: "/", name: "q", kind: "classic"}
}

// VHost implements [hook.Queue].
func (q *queue) VHost() string { return q.vhost }

// Name implements [hook.Queue].
func (q *queue) Name() string { return q.name }

// Type implements [hook.Queue].
func (q *queue) Type() string { return q.kind }

// Setting implements [hook.Queue].
func (q *queue) Setting(name string) (any, bool) {
	v, ok := q.settings[name]
	return v, ok
}

// Strategy implements [hook.Queue].
func (*queue) Strategy() string { return "wasm/" + underTest }

// Ready implements [hook.Queue].
func (q *queue) Ready() int { return q.ready }

// ReadyBytes implements [hook.Queue].
func (q *queue) ReadyBytes() int64 { return q.bytes }

// Unacked implements [hook.Queue].
func (q *queue) Unacked() int { return q.unacked }

// Consumers implements [hook.Queue].
func (q *queue) Consumers() int { return q.readers }

// Credit implements [hook.Queue].
func (q *queue) Credit() int { return 0 }

// plain logs what the policy says, without the time, which would be another one
// at each run.
type plain struct{ w io.Writer }

// Enabled implements [slog.Handler].
func (plain) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements [slog.Handler].
func (p plain) Handle(_ context.Context, r slog.Record) error {
	line := fmt.Sprintf("%s %s", r.Level, r.Message)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "policy" && a.Key != "digest" {
			line += fmt.Sprintf(" %s=%q", a.Key, a.Value.String())
		}
		return true
	})
	_, err := fmt.Fprintln(p.w, line)
	return err
}

// WithAttrs implements [slog.Handler]; the host's loggers have none.
func (p plain) WithAttrs([]slog.Attr) slog.Handler { return p }

// WithGroup implements [slog.Handler]; the host's loggers have none.
func (p plain) WithGroup(string) slog.Handler { return p }
