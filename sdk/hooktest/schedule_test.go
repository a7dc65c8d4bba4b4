package hooktest

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

func TestBadSchedules(t *testing.T) {
	var calls atomic.Int64
	for _, tc := range []struct {
		name string
		bad  func(s *hook.Schedule)
		want string
	}{
		{"is good", func(*hook.Schedule) {}, ""},
		{"is good with Released", func(s *hook.Schedule) {
			s.Released = func(m *hook.Publishing, r *hook.Release) { r.Hold = m.Now + 1 }
		}, ""},
		{"has no inner type", func(s *hook.Schedule) { s.Inner = "" }, `the Inner type ""`},
		{"has itself as inner type", func(s *hook.Schedule) { s.Inner = "x-late" }, `the Inner type "x-late"`},
		{"has no Plan", func(s *hook.Schedule) { s.Plan = nil }, "and a Plan"},
		{"panics", func(s *hook.Schedule) { s.Plan = func(*hook.Publishing, *hook.Plan) error { panic("no") } }, "Plan of"},
		{"refuses with nothing", func(s *hook.Schedule) {
			s.Plan = func(*hook.Publishing, *hook.Plan) error { return errors.New("") }
		}, "want one line"},
		{"changes the message", func(s *hook.Schedule) {
			s.Plan = func(m *hook.Publishing, _ *hook.Plan) error { m.Now++; return nil }
		}, "changes the message"},
		{"cancels nothing", func(s *hook.Schedule) {
			s.Plan = func(_ *hook.Publishing, p *hook.Plan) error { p.Cancel = true; return nil }
		}, "cancels without an ID"},
		{"counts", func(s *hook.Schedule) {
			s.Plan = func(_ *hook.Publishing, p *hook.Plan) error { p.Hold = hook.Instant(calls.Add(1)); return nil }
		}, "when it is asked again"},
		{"panics when it is due", func(s *hook.Schedule) { s.Released = func(*hook.Publishing, *hook.Release) { panic("no") } }, "Released of"},
		{"changes when it was due", func(s *hook.Schedule) {
			s.Released = func(_ *hook.Publishing, r *hook.Release) { r.Due++ }
		}, "changes Due"},
		{"releases again at once", func(s *hook.Schedule) {
			s.Released = func(m *hook.Publishing, r *hook.Release) { r.Hold = m.Now }
		}, "which is not after"},
		{"releases by chance", func(s *hook.Schedule) {
			s.Released = func(_ *hook.Publishing, r *hook.Release) { r.State = calls.Add(1) }
		}, "then"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := hook.Schedule{Inner: "topic", Plan: func(m *hook.Publishing, p *hook.Plan) error { p.Hold = m.Now + 5; return nil }}
			tc.bad(&s)
			typ := hook.ExchangeType{Name: "x-late", Description: "Late.", Schedule: func(*hook.Exchange) hook.Schedule { return s }}
			got := record(func(r reporter) { checkExchanges(r, plugs(typer{types: []hook.ExchangeType{typ}}), nil) })
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestNewSchedule(t *testing.T) {
	p := typer{types: []hook.ExchangeType{lineType(&lines{}), {Name: "x-late", Schedule: func(x *hook.Exchange) hook.Schedule {
		v, _ := x.Setting("inner")
		inner, _ := v.(string)
		return hook.Schedule{Inner: inner}
	}}}}
	s, err := NewSchedule(p, ExchangeSpec{Type: "x-late", Args: hook.Args{{Name: "x-inner", Value: "fanout"}}})
	if err != nil || s.Inner != "fanout" {
		t.Errorf("got the inner type %q, %v", s.Inner, err)
	}
	if _, err := NewSchedule(p, ExchangeSpec{Type: "x-line"}); err == nil {
		t.Error("a type without a Schedule has one")
	}
}
