package hooktest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/curfewmq/curfew/sdk/hook"
)

// innerTypes are the types that can route for exchanges with a Schedule in this package.
var innerTypes = []string{"direct", "fanout", "topic", "headers"}

// settingOf returns the Setting function of an exchange without policies.
func settingOf(args hook.Args) func(name string) (any, bool) {
	return func(name string) (any, bool) { return args.Lookup("x-" + name) }
}

// NewSchedule returns the schedule of an exchange of one of plugin p's types, with the settings of its arguments and no policies. If the
// plugin refuses the exchange, NewSchedule returns the plugin's error, as for a client's declaration.
func NewSchedule(p hook.Plugin, s ExchangeSpec) (hook.Schedule, error) {
	e, err := Declare(p, s)
	if err != nil {
		return hook.Schedule{}, err
	}
	if e.typ == nil || e.typ.Schedule == nil {
		return hook.Schedule{}, fmt.Errorf("the plugin has no exchange type %s with a Schedule", s.Type)
	}
	return e.typ.Schedule(e.x), nil
}

// checkSchedule calls a schedule with messages, one by one and from several goroutines.
func (s *exchangeSubject) checkSchedule() {
	s.t.Helper()
	schedule := s.schedule()
	if schedule.Plan == nil || !slices.Contains(innerTypes, schedule.Inner) {
		s.t.Fatalf("%s: the Schedule has the Inner type %q, want one of %s, and a Plan", s.name, schedule.Inner, strings.Join(innerTypes, ", "))
	}
	ls := s.letters(21, 300)
	want := make([]string, len(ls))
	for i, l := range ls {
		var err error
		if want[i], err = planned(schedule, l); err != nil {
			s.t.Fatalf("%s: Plan of %s: %v", s.name, l, err)
		}
		if err = released(schedule, l); err != nil {
			s.t.Fatalf("%s: Released of %s: %v", s.name, l, err)
		}
	}
	other := s.schedule() // like after a restart
	faults := make(chan string, len(ls)*4)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i, l := range ls {
				got, err := planned(other, l)
				if err == nil {
					err = released(other, l)
				}
				if err != nil || got != want[i] {
					faults <- fmt.Sprintf("%s: got %s, error %v, was %s", l, got, err, want[i])
				}
			}
		})
	}
	wg.Wait()
	close(faults)
	if f, ok := <-faults; ok {
		s.t.Errorf("%s: Plan from several goroutines, when it is asked again: %s", s.name, f)
	}
}

func (s *exchangeSubject) schedule() (schedule hook.Schedule) {
	s.t.Helper()
	e := s.declare()
	if err := contained(func() error { schedule = e.typ.Schedule(e.x); return nil }); err != nil {
		s.t.Fatalf("%s: Schedule %v", s.name, err)
	}
	return schedule
}

// planned calls Plan as the broker does, and describes the answer.
func planned(s hook.Schedule, l letter) (plan string, err error) {
	m, end := l.publishing()
	defer end()
	var p hook.Plan
	var refused error
	err = contained(func() error {
		if refused = s.Plan(m, &p); refused != nil {
			plan = "error " + refused.Error() // panics for a nil pointer
		}
		return nil
	})
	switch {
	case err != nil:
		return "", err
	case m.Key != l.key || m.Now != l.now || !slices.Equal(m.More, l.more):
		return "", errors.New("changes the message")
	case refused == nil && p.Cancel && len(p.ID) == 0:
		return "", errors.New("cancels without an ID")
	case refused == nil:
		return fmt.Sprintf("%d %q %t", p.Hold, p.ID, p.Cancel), nil
	case refused.Error() == "" || strings.ContainsAny(plan, "\r\n"):
		return "", fmt.Errorf("refuses with %q, want one line", plan)
	}
	return plan, nil
}

// released calls Released for a due message as the broker does, twice.
func released(s hook.Schedule, l letter) error {
	if s.Released == nil {
		return nil
	}
	var answers [2]hook.Release
	for i := range answers {
		err := contained(func() error {
			m, end := l.publishing()
			defer end()
			answers[i] = hook.Release{Due: l.now - 1, State: 3}
			s.Released(m, &answers[i])
			return nil
		})
		switch r := answers[i]; {
		case err != nil:
			return err
		case r.Due != l.now-1:
			return errors.New("changes Due")
		case r.Hold != 0 && r.Hold <= l.now:
			return fmt.Errorf("holds it until %d, which is not after %d", r.Hold, l.now)
		}
	}
	if answers[0] != answers[1] {
		return fmt.Errorf("got %+v, then %+v", answers[0], answers[1])
	}
	return nil
}
