package crash

import (
	"strings"
	"testing"
	"time"
)

// A secretary who finds no fault with anything proves nothing, either.
func TestSecretary(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	past, future := now.Add(-time.Second), now.Add(time.Second)
	for _, tt := range []struct {
		name    string
		a       appointment
		twoLogs bool
		wrong   string
		missing bool
	}{
		{name: "due", a: appointment{due: past, came: yes}, missing: true},
		{name: "not due", a: appointment{due: future, came: yes}, wrong: "early"},
		{name: "not confirmed", a: appointment{due: past, came: maybe}},
		{name: "cancelled", a: appointment{due: past, came: yes, cancelled: yes}, wrong: "came though it was cancelled"},
		{name: "cancelled, perhaps", a: appointment{due: past, came: yes, cancelled: maybe}},
		{name: "seen", a: appointment{due: past, came: yes, seen: maybe, life: 2}, wrong: "came twice"},
		{name: "seen before a crash", a: appointment{due: past, came: yes, seen: maybe, life: 1}},
		{name: "seen, which is on the disk", a: appointment{due: past, came: yes, seen: yes, life: 1}, wrong: "came twice"},
		{name: "seen before a crash, with two logs", a: appointment{due: past, came: yes, seen: maybe, life: 1, doubled: true}, twoLogs: true},
	} {
		s := newSecretary("agenda", !tt.twoLogs)
		s.life, s.all = 2, map[int]*appointment{1: &tt.a}
		l := newLedger(!tt.twoLogs)
		l.clock = func() time.Time { return now }
		p := &planner{secretary: s, ledger: l}
		if got := p.wrong(&tt.a); got != tt.wrong {
			t.Errorf("%s: wrong is %q, want %q", tt.name, got, tt.wrong)
		}
		if got := p.missing() != nil; got != tt.missing {
			t.Errorf("%s: missing: %v", tt.name, got)
		}
	}
}

// What was cancelled in time does not come, and what had come is not cancelled.
func TestSecretaryCancels(t *testing.T) {
	for _, tt := range []struct {
		name   string
		a      appointment
		before fact
		want   string
	}{
		{name: "in time", a: appointment{came: yes}},
		{name: "twice", a: appointment{came: yes}, before: yes, want: "cancelled what had left"},
		{name: "too late", a: appointment{came: yes, seen: maybe, life: 2}, want: "cancelled what had left"},
		{name: "seen before a crash that lost its release", a: appointment{came: yes, seen: maybe, life: 1}},
	} {
		s := newSecretary("agenda", true)
		s.life = 2
		p := &planner{secretary: s, ledger: newLedger(true)}
		p.cancelled(&tt.a, tt.before)
		got := strings.Join(p.ledger.breaches, "")
		if tt.a.cancelled != yes || (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: cancelled %v, complaint %q, want %q", tt.name, tt.a.cancelled, got, tt.want)
		}
	}
}

// A cancellation that finds nothing is confirmed at once: a secretary took that for a confirm of what she had read, which came again
// when the broker was killed.
func TestSecretaryIsConfirmed(t *testing.T) {
	for _, tt := range []struct {
		name     string
		life     int // in which it was seen
		twoLogs  bool
		returned bool
		want     fact
	}{
		{name: "stored", life: 2, want: yes},
		{name: "returned", life: 2, returned: true, want: maybe},
		{name: "seen before a crash", life: 1, want: maybe},
		{name: "in another log", life: 2, twoLogs: true, want: maybe},
	} {
		s := newSecretary("agenda", !tt.twoLogs)
		a := &appointment{seen: maybe, life: tt.life}
		s.life, s.all = 2, map[int]*appointment{1: a}
		if s.confirmed(tt.returned); a.seen != tt.want {
			t.Errorf("%s: seen is %v, want %v", tt.name, a.seen, tt.want)
		}
	}
}
