package policy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/curfewmq/curfew/cmd/curfew/printable"
	"github.com/curfewmq/curfew/core/config"
	"github.com/curfewmq/curfew/plugins/wasm"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
)

// lab is the broker's host of policies with one module, but without a broker.
type lab struct {
	host   *wasm.Host
	module []byte
	traced func(m *hook.Message, key, value string) // called with the attributes that the policy adds to traces; may be nil
}

// underTest is the name of the policy in a lab.
const underTest = "under-test"

// newLab loads a module, even if it fails its trial: the command shows how.
func newLab(module []byte, o wasm.Options, log io.Writer) (*lab, error) {
	return labFor(module, o, wasm.Advisory, plain{w: log, untried: true})
}

// labFor loads a module. Without a list of grants it has all of them: in a broker the operator decides.
func labFor(module []byte, o wasm.Options, mode wasm.TrialMode, log plain) (*lab, error) {
	p, _, err := wasm.Factory.New(func(any) error { return nil })
	if err != nil {
		return nil, err
	}
	h, ok := p.(*wasm.Host)
	if !ok {
		return nil, fmt.Errorf("the plugin is a %T", p)
	}
	l := &lab{host: h, module: module}
	env := wasm.Env{Log: slog.New(log), Trial: mode, Nearest: config.Nearest, Trace: func(_ string, m *hook.Message, key, value string) {
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

// withoutName removes the policy's name, which the user did not choose, from an error.
func withoutName(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}

func (l *lab) close() error { return l.host.Close() }

// info returns the host's information about the policy.
func (l *lab) info() wasm.Info {
	i, _ := l.host.Info(underTest)
	return i
}

// failures returns the number of the policy's failures.
func (l *lab) failures() (n uint64) {
	for _, k := range l.info().Errors {
		n += k
	}
	return n
}

// attach returns the hooks of a queue that has chosen the policy.
func (l *lab) attach(q *queue) hook.Hooks { return l.host.Attach(q) }

// failed returns the policy's failures as an error; nil if there are none.
func (l *lab) failed() error {
	i := l.info()
	if l.failures() == 0 {
		return nil
	}
	return errors.New("the policy failed: " + i.LastError)
}

// queue is a queue as seen by policies.
type queue struct {
	settings map[string]any // by their names in policies
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

// The methods of [hook.Queue].

func (q *queue) VHost() string                   { return q.vhost }
func (q *queue) Name() string                    { return q.name }
func (q *queue) Type() string                    { return q.kind }
func (q *queue) Setting(name string) (any, bool) { v, ok := q.settings[name]; return v, ok }
func (*queue) Strategy() string                  { return "wasm/" + underTest }
func (q *queue) Ready() int                      { return q.ready }
func (q *queue) ReadyBytes() int64               { return q.bytes }
func (q *queue) Unacked() int                    { return q.unacked }
func (*queue) Held() int                         { return 0 } // policies do not see it
func (q *queue) Consumers() int                  { return q.readers }
func (q *queue) Credit() int                     { return 0 }

// plain is a [slog.Handler] that logs the policy's lines without the time, which would differ in each run. Warnings are left to
// the command. Of the host's loggers, only those of trials have an attribute.
type plain struct {
	w       io.Writer
	untried bool // leave out lines of the trial
}

func (plain) Enabled(context.Context, slog.Level) bool { return true }
func (p plain) WithGroup(string) slog.Handler          { return p }

func (p plain) WithAttrs([]slog.Attr) slog.Handler {
	if p.untried {
		return slog.DiscardHandler
	}
	return p
}

func (p plain) Handle(_ context.Context, r slog.Record) error {
	line, warning := fmt.Sprintf("%s %s", r.Level, r.Message), false
	r.Attrs(func(a slog.Attr) bool {
		warning = warning || a.Key == "warning"
		if a.Key != "policy" && a.Key != "digest" {
			line += fmt.Sprintf(" %s=%q", a.Key, a.Value.String())
		}
		return true
	})
	if warning {
		return nil
	}
	_, err := fmt.Fprintln(p.w, line)
	return err
}

// warn prints warnings about a policy.
func (p *Program) warn(warnings []string) {
	for _, w := range warnings {
		fmt.Fprintf(printable.Writer(p.Stderr), "warning: %s\n", w)
	}
}
