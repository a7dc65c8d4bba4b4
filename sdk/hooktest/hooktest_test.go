package hooktest

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a plugin made of functions.
type fake struct {
	arguments []hook.Argument
	attach    func(q hook.Queue) hook.Hooks
}

func (f fake) Arguments() []hook.Argument { return f.arguments }

func (f fake) Attach(q hook.Queue) hook.Hooks {
	if f.attach == nil {
		return hook.Hooks{}
	}
	return f.attach(q)
}

// strategist is a fake that offers the strategy "mine".
type strategist struct{ fake }

func (strategist) Strategies() []string    { return []string{"mine"} }
func (strategist) DefaultStrategy() string { return "" }

// recorder collects the suite's complaints about a plugin.
type recorder struct{ said []string }

func (*recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

type stop struct{}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(stop{})
}

// record runs check and returns its complaints.
func record(check func(t reporter)) string {
	var r recorder
	func() {
		defer func() {
			if v := recover(); v != nil && v != any(stop{}) {
				panic(v)
			}
		}()
		check(&r)
	}()
	return strings.Join(r.said, "\n")
}

type batchFunc = func(now hook.Instant, ms []hook.Message, vs []hook.Verdict)

// each returns a callback that does the same with every message.
func each(do func(m *hook.Message, v *hook.Verdict)) batchFunc {
	return func(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		for i := range ms {
			do(&ms[i], &vs[i])
		}
	}
}

// always returns an Attach that returns h.
func always(h hook.Hooks) func(hook.Queue) hook.Hooks {
	return func(hook.Queue) hook.Hooks { return h }
}

func TestBadCallbacks(t *testing.T) {
	for _, tc := range []struct {
		name   string
		attach func(q hook.Queue) hook.Hooks
		want   string
	}{
		{
			name: "keeps messages",
			attach: func(hook.Queue) hook.Hooks {
				var kept []hook.Message
				return hook.Hooks{OnEnqueue: func(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
					if len(kept) > 0 && kept[0].Priority == 255 {
						vs[0] = hook.Verdict{Action: hook.Refuse}
					}
					kept = ms
				}}
			},
			want: "depend on messages it kept",
		},
		{
			name: "keeps messages and reads their contents",
			attach: func(hook.Queue) hook.Hooks {
				var kept []hook.Message
				return hook.Hooks{OnHead: func(_ hook.Instant, ms []hook.Message, _ []hook.Verdict) {
					if len(kept) > 0 {
						kept[0].Header("x")
					}
					kept = ms
				}}
			},
			want: "read after its callback had returned",
		},
		{
			name: "keeps verdicts",
			attach: func(hook.Queue) hook.Hooks {
				var kept []hook.Verdict
				return hook.Hooks{OnEnqueue: func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) {
					if len(kept) > 0 {
						kept[0].AskHead = true
					}
					kept = vs
				}}
			},
			want: "writes to verdicts of an earlier call",
		},
		{
			name:   "changes messages",
			attach: always(hook.Hooks{OnEnqueue: each(func(m *hook.Message, _ *hook.Verdict) { m.Size++ })}),
			want:   "changes the messages",
		},
		{
			name: "looks at the whole batch",
			attach: always(hook.Hooks{OnEnqueue: func(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
				if len(ms) > 1 {
					vs[0] = hook.Verdict{Action: hook.Refuse}
				}
			}}),
			want: "in a batch differ from those one by one",
		},
		{
			name:   "does not handle an empty batch",
			attach: always(hook.Hooks{OnEnqueue: func(_ hook.Instant, ms []hook.Message, _ []hook.Verdict) { _ = ms[0] }}),
			want:   "panics on a batch of 0",
		},
		{
			name:   "assumes a header's type",
			attach: always(hook.Hooks{OnEnqueue: each(func(m *hook.Message, _ *hook.Verdict) { v, _ := m.Header("x-delay"); _ = v.(int32) })}),
			want:   "OnEnqueue panics on {",
		},
		{
			name: "differs from call to call",
			attach: func() func(hook.Queue) hook.Hooks {
				calls := 0
				return always(hook.Hooks{OnEnqueue: each(func(_ *hook.Message, v *hook.Verdict) { calls++; v.AskHead = calls%7 == 0 })})
			}(),
			want: "differ",
		},
		{
			name:   "refuses at the head",
			attach: always(hook.Hooks{OnHead: each(func(_ *hook.Message, v *hook.Verdict) { v.Action = hook.Refuse })}),
			want:   "only OnEnqueue may refuse",
		},
		{
			name:   "drops without a reason",
			attach: always(hook.Hooks{OnEnqueue: each(func(_ *hook.Message, v *hook.Verdict) { *v = hook.Verdict{Action: hook.Drop} })}),
			want:   "without a reason",
		},
		{
			name: "routes nowhere",
			attach: always(hook.Hooks{OnHead: each(func(_ *hook.Message, v *hook.Verdict) {
				*v = hook.Verdict{Action: hook.Route, Reason: hook.ReasonExpired, State: v.State}
			})}),
			want: "routes without a target",
		},
		{
			name:   "makes up an action",
			attach: always(hook.Hooks{OnEnqueue: each(func(_ *hook.Message, v *hook.Verdict) { v.Action = 9 })}),
			want:   "there is no action 9",
		},
		{
			name:   "keeps what leaves",
			attach: always(hook.Hooks{OnHead: each(func(_ *hook.Message, v *hook.Verdict) { v.Action = hook.Keep })}),
			want:   "keeps a message that leaves",
		},
		{
			name:   "has a deadline before time began",
			attach: always(hook.Hooks{OnEnqueue: each(func(_ *hook.Message, v *hook.Verdict) { v.Deadline = -5 })}),
			want:   "there is no deadline -5",
		},
		{
			name:   "sets a state",
			attach: always(hook.Hooks{OnEnqueue: each(func(_ *hook.Message, v *hook.Verdict) { v.State = 77 })}),
			want:   "sets a state",
		},
		{
			name:   "sets a digest",
			attach: always(hook.Hooks{OnEnqueue: each(func(_ *hook.Message, v *hook.Verdict) { guest.SetDigest(v, 77) })}),
			want:   "sets a digest",
		},
		{
			name: "reads counts too early",
			attach: func(q hook.Queue) hook.Hooks {
				q.Ready()
				return hook.Hooks{}
			},
			want: "Attach reads a live count",
		},
		{
			name: "shares what it must not",
			attach: func(q hook.Queue) hook.Hooks {
				return hook.Hooks{Shared: true, OnEnqueue: func(hook.Instant, []hook.Message, []hook.Verdict) { q.Credit() }}
			},
			want: "has Shared, and a callback reads",
		},
		{
			name:   "watches without listening",
			attach: always(hook.Hooks{OnEnqueue: each(func(_ *hook.Message, v *hook.Verdict) { v.Watch = true })}),
			want:   "sets Watch without OnGone",
		},
		{
			name:   "is not told of all messages at once",
			attach: always(hook.Hooks{OnGone: func(ms []hook.Message) { _ = ms[0] }}),
			want:   "OnGone panics: runtime error: index out of range [0] with length 0",
		},
		{
			name: "keeps messages that are gone",
			attach: func(hook.Queue) hook.Hooks {
				var kept []hook.Message
				return hook.Hooks{OnGone: func(ms []hook.Message) {
					if len(kept) > 0 {
						kept[0].Header("x")
					}
					kept = ms
				}}
			},
			want: "read after its callback had returned",
		},
		{name: "has an impossible scan", attach: always(hook.Hooks{Scan: 99}), want: "Scan is 99"},
		{name: "usurps the strategy", attach: always(hook.Hooks{Strategy: true}), want: "which it does not offer"},
		{
			name:   "listens for requeues",
			attach: always(hook.Hooks{OnRequeue: func(hook.Instant, []hook.Message, []hook.Verdict) {}}),
			want:   "they are not heard",
		},
		{
			name:   "counts deadlines from when messages are ready",
			attach: always(hook.Hooks{DeadlineFromReady: true}),
			want:   "has DeadlineFromReady without being the queue's strategy",
		},
		{
			name:   "holds messages since before the epoch",
			attach: always(hook.Hooks{OnEnqueue: each(func(_ *hook.Message, v *hook.Verdict) { v.Hold = -1 })}),
			want:   "cannot hold a message until -1",
		},
		{
			name:   "takes back holds of others",
			attach: always(hook.Hooks{OnHead: each(func(_ *hook.Message, v *hook.Verdict) { v.Hold = 0 })}),
			want:   "shortens a hold",
		},
		{
			name:   "takes back holds of what comes back",
			attach: always(hook.Hooks{OnReturn: each(func(_ *hook.Message, v *hook.Verdict) { v.Hold = 0 })}),
			want:   "shortens a hold",
		},
		{
			name:   "routes an idle queue",
			attach: always(hook.Hooks{OnIdle: func(_ hook.Instant, _ time.Duration, v *hook.Verdict) { v.Action = hook.Route }}),
			want:   "want Keep or Drop",
		},
		{
			name:   "drops a queue without a reason",
			attach: always(hook.Hooks{OnIdle: func(_ hook.Instant, _ time.Duration, v *hook.Verdict) { *v = hook.Verdict{Action: hook.Drop} }}),
			want:   "Drop without a reason",
		},
		{
			name:   "asks again at once",
			attach: always(hook.Hooks{OnIdle: func(now hook.Instant, _ time.Duration, v *hook.Verdict) { v.Deadline = now }}),
			want:   "in the past",
		},
	} {
		got := record(func(r reporter) { (&subject{t: r, plugin: fake{attach: tc.attach}, spec: Spec{}}).check() })
		if !strings.Contains(got, tc.want) {
			t.Errorf("a plugin that %s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestBadStrategies(t *testing.T) {
	for _, tc := range []struct {
		name  string
		hooks hook.Hooks
		want  string
	}{
		{
			name:  "keeps due messages for ever",
			hooks: hook.Hooks{Strategy: true, OnHead: func(hook.Instant, []hook.Message, []hook.Verdict) {}},
			want:  "keeps a due message without a later deadline",
		},
		{
			name: "drops what comes back",
			hooks: hook.Hooks{Strategy: true, OnRequeue: each(func(_ *hook.Message, v *hook.Verdict) {
				v.Action, v.Reason = hook.Drop, hook.ReasonExpired
			})},
			want: "OnRequeue may only keep",
		},
		{
			name:  "holds messages that are there",
			hooks: hook.Hooks{Strategy: true, OnRestamp: each(func(_ *hook.Message, v *hook.Verdict) { v.Hold = now.Add(time.Hour) })},
			want:  "OnRestamp may not hold",
		},
		{
			name: "takes back holds when it renews deadlines",
			hooks: hook.Hooks{Strategy: true, OnRequeue: each(func(_ *hook.Message, v *hook.Verdict) {
				v.Hold = 0
			})},
			want: "shortens a hold",
		},
	} {
		p := strategist{fake{attach: always(tc.hooks)}}
		got := record(func(r reporter) { (&subject{t: r, plugin: p, spec: Spec{Strategy: "mine"}}).check() })
		if !strings.Contains(got, tc.want) {
			t.Errorf("a strategy that %s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

type goodConfig struct {
	Size int           `koanf:"size"`
	Wait time.Duration `koanf:"wait"`
	Deep struct {
		On bool `koanf:"on"`
	} `koanf:"deep"`
	Names []string   `koanf:"names"`
	Small uint8      `koanf:"small"`
	Share float64    `koanf:"share"`
	Addr  netip.Addr `koanf:"addr"`
	Cache int        `koanf:"-"`
}

func factory[C any](name string, defaults C, build func(C) (hook.Plugin, error)) hook.Factory {
	if build == nil {
		build = func(C) (hook.Plugin, error) { return fake{}, nil }
	}
	return hook.NewFactory(name, defaults, build)
}

func TestBadFactories(t *testing.T) {
	type untagged struct{ Size int }
	for _, tc := range []struct {
		name    string
		factory hook.Factory
		want    string
	}{
		{"has an odd name", factory("My Plugin", goodConfig{}, nil), `name "My Plugin"`},
		{"forgets a tag", factory("x", untagged{}, nil), "untagged.Size: tag"},
		{"has no struct", factory("x", 5, nil), "defaults: got plugin"},
		{
			"refuses its defaults",
			factory("x", goodConfig{}, func(goodConfig) (hook.Plugin, error) { return nil, errors.New("no") }),
			"defaults: got plugin <nil>, error no",
		},
		{
			"does not decode",
			hook.Factory{Name: "x", New: func(func(any) error) (hook.Plugin, any, error) { return fake{}, goodConfig{}, nil }},
			"unknown key: got error <nil>",
		},
		{
			"ignores the decoder's error",
			hook.Factory{Name: "x", New: func(decode func(any) error) (hook.Plugin, any, error) {
				var c goodConfig
				_ = decode(&c)
				return fake{}, c, nil
			}},
			"hides the decoder's error",
		},
	} {
		got := record(func(r reporter) { checkConfig(r, tc.factory) })
		if !strings.Contains(got, tc.want) {
			t.Errorf("a factory that %s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestBadArguments(t *testing.T) {
	accept := func(any, hook.Args) error { return nil }
	for _, tc := range []struct {
		name      string
		arguments []hook.Argument
		want      string
	}{
		{"no x-", []hook.Argument{{Name: "ttl", Check: accept}}, `argument "ttl"`},
		{"twice", []hook.Argument{{Name: "x-a", Check: accept}, {Name: "x-a", Check: accept}}, "each once"},
		{"no check", []hook.Argument{{Name: "x-a"}}, "no Check"},
		{"queue type", []hook.Argument{{Name: "x-a", Check: accept, QueueTypes: []string{"stream"}}}, `no queue type "stream"`},
		{
			"plain error",
			[]hook.Argument{{Name: "x-a", Check: func(any, hook.Args) error { return errors.New("no") }}},
			"want a hook.ArgError",
		},
		{"for no type", []hook.Argument{{Name: "x-a", Check: accept, QueueTypes: []string{}}}, "QueueTypes is empty"},
		{
			"a nil pointer as the error",
			[]hook.Argument{{Name: "x-a", Check: func(any, hook.Args) error { return (*hook.ArgError)(nil) }}},
			"x-a = <nil> <nil>: the check panics",
		},
		{
			"assumes a type",
			[]hook.Argument{{Name: "x-a", Check: func(v any, _ hook.Args) error { return hook.CheckInt(v.(int32), 0, 9) }}},
			"x-a = <nil> <nil>: the check panics",
		},
	} {
		f := factory("x", goodConfig{}, func(goodConfig) (hook.Plugin, error) { return fake{arguments: tc.arguments}, nil })
		got := record(func(r reporter) { checkArguments(r, f) })
		if !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestRunAcceptsGoodPlugins(t *testing.T) {
	Run(t, factory("good", goodConfig{}, nil))
	Run(t, factory("strategy", goodConfig{}, func(goodConfig) (hook.Plugin, error) {
		return strategist{fake{attach: func(q hook.Queue) hook.Hooks {
			if q.Strategy() != "mine" {
				return hook.Hooks{}
			}
			renew := func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
				for i := range ms {
					if vs[i].Action == hook.Keep {
						vs[i].Deadline, vs[i].State = now.Add(time.Second), ms[i].State+1
					}
				}
			}
			return hook.Hooks{Strategy: true, Scan: hook.ScanHeads, OnEnqueue: renew, OnHead: renew, OnRequeue: renew}
		}}}, nil
	}))
}

func TestSection(t *testing.T) {
	for _, tc := range []struct {
		name    string
		section Section
		want    goodConfig
		err     string
	}{
		{name: "absent"},
		{
			name: "all",
			section: Section{
				"size": 3, "wait": "1m30s", "names": []string{"a"}, "deep": Section{"on": true},
				"small": 255, "share": 1, "addr": "127.0.0.1",
			},
			want: goodConfig{Small: 255, Share: 1, Addr: netip.MustParseAddr("127.0.0.1"), Size: 3, Wait: 90 * time.Second, Names: []string{"a"}, Deep: struct {
				On bool `koanf:"on"`
			}{true}},
		},
		{name: "unknown", section: Section{"sise": 3}, err: "sise: unknown key"},
		{name: "unknown below", section: Section{"deep": Section{"off": true}}, err: "deep: off: unknown key"},
		{name: "type", section: Section{"size": "3"}, err: "size: 3 is not a int"},
		{name: "range", section: Section{"small": 256}, err: "small: 256 is not a uint8"},
		{name: "text", section: Section{"addr": "nowhere"}, err: "addr: ParseAddr"},
		{name: "nil", section: Section{"size": nil}, err: "size: <nil> is not a int"},
		{name: "duration without unit", section: Section{"wait": 5}, err: "wait: 5 is not a time.Duration"},
		{name: "bad duration", section: Section{"wait": "soon"}, err: "wait: time: invalid duration"},
	} {
		var got goodConfig
		err := tc.section.Decode(&got)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: got error %v, want %q", tc.name, err, tc.err)
			}
			continue
		}
		if err != nil || fmt.Sprint(got) != fmt.Sprint(tc.want) {
			t.Errorf("%s: got %+v, %v, want %+v", tc.name, got, err, tc.want)
		}
	}
}

func TestSectionOfEntries(t *testing.T) {
	var got struct {
		Books map[string]*struct {
			Path string `koanf:"path"`
		} `koanf:"books"`
	}
	if err := (Section{"books": Section{"a": Section{"path": "p"}, "b": Section{}}}).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if len(got.Books) != 2 || got.Books["a"].Path != "p" || got.Books["b"].Path != "" {
		t.Errorf("got %+v", got.Books)
	}
	err := Section{"books": Section{"a": Section{"pth": "p"}}}.Decode(&got)
	if err == nil || err.Error() != "books: a: pth: unknown key" {
		t.Errorf("unknown key: got %v", err)
	}
}

func TestHeadersAsNumbersAndText(t *testing.T) {
	ms := make([]hook.Message, 1)
	Bind(ms, Content{Parts: map[hook.Part][]byte{hook.PartType: []byte("t")}, Headers: map[string]any{
		"int": int16(-3), "true": true, "false": false, "whole": 4.0, "half": 0.5, "digits": "-12", "words": "soon", "bytes": []byte("b"), "nil": nil,
	}})
	for name, want := range map[string]struct {
		n      int64
		number bool
		text   string
	}{
		"int": {n: -3, number: true}, "true": {n: 1, number: true}, "false": {number: true}, "whole": {n: 4, number: true},
		"half": {}, "digits": {n: -12, number: true, text: "-12"}, "words": {text: "soon"}, "bytes": {text: "b"}, "nil": {}, "absent": {},
	} {
		n, ok := ms[0].HeaderInt(name)
		text, isText := ms[0].HeaderText(name)
		if n != want.n || ok != want.number || string(text) != want.text || isText != (want.text != "") {
			t.Errorf("%s: got %d, %t, %q, %t, want %+v", name, n, ok, text, isText, want)
		}
	}
	if string(ms[0].Part(hook.PartType)) != "t" || ms[0].Part(hook.PartBody) != nil {
		t.Errorf("parts: got %q, %q", ms[0].Part(hook.PartType), ms[0].Part(hook.PartBody))
	}
}

func TestContents(t *testing.T) {
	ms := make([]hook.Message, 2)
	Bind(ms, Content{Exchange: "e", RoutingKey: "k", Headers: map[string]any{"h": int32(1)}, Deaths: 3})
	v, ok := ms[0].Header("h")
	if string(ms[0].Exchange()) != "e" || string(ms[0].RoutingKey()) != "k" || v != int32(1) || !ok || ms[0].Deaths() != 3 {
		t.Errorf("first: got %s, %s, %v, %d", ms[0].Exchange(), ms[0].RoutingKey(), v, ms[0].Deaths())
	}
	if _, ok := ms[1].Header("h"); ok || ms[1].Deaths() != 0 {
		t.Error("the second message has the contents of the first")
	}
}
