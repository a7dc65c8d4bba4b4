package policy

import (
	"testing"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/sdk/abi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type everything struct{}

func (everything) OnEnqueue(int64, *Msg, *Verdict)          {}
func (everything) OnDeadline(int64, *Msg, *Verdict)         {}
func (everything) OnHead(int64, *Msg, *Verdict)             {}
func (everything) OnRequeue(int64, *Msg, *Verdict)          {}
func (everything) OnIdle(int64, int64, int, int, int) int64 { return IdleStays }

type onlyIdle struct{}

func (onlyIdle) OnIdle(int64, int64, int, int, int) int64 { return IdleStays }

func TestHooksAreThoseThatThereAreMethodsFor(t *testing.T) {
	for _, tc := range []struct {
		policy any
		want   int64
	}{
		{everything{}, 0b111110},
		{onlyIdle{}, 0b100000},
	} {
		registered.hooks = 0
		if Register(tc.policy); registered.hooks != tc.want {
			t.Errorf("%T: got %b, want %b", tc.policy, registered.hooks, tc.want)
		}
	}
}

func TestRegisterRefusesWhatHasNoHook(t *testing.T) {
	registered.hooks = 0
	defer func() {
		if recover() == nil {
			t.Error("a type without hooks was registered")
		}
	}()
	Register(struct{}{})
}

// The data that the broker writes and reads has the ABI's layout.
func TestLayout(t *testing.T) {
	var r record
	var a answer
	for name, at := range map[string][2]uintptr{
		"record":           {unsafe.Sizeof(r), abi.RecordSize},
		"enqueued":         {unsafe.Offsetof(r.enqueued), abi.RecordEnqueued},
		"expiration":       {unsafe.Offsetof(r.expiration), abi.RecordExpiration},
		"queue TTL":        {unsafe.Offsetof(r.queueTTL), abi.RecordQueueTTL},
		"deadline":         {unsafe.Offsetof(r.deadline), abi.RecordDeadline},
		"record's state":   {unsafe.Offsetof(r.state), abi.RecordState},
		"size":             {unsafe.Offsetof(r.size), abi.RecordSizeOf},
		"deliveries":       {unsafe.Offsetof(r.deliveries), abi.RecordDeliveries},
		"deaths":           {unsafe.Offsetof(r.deaths), abi.RecordDeaths},
		"queue":            {unsafe.Offsetof(r.queue), abi.RecordQueue},
		"priority":         {unsafe.Offsetof(r.priority), abi.RecordPriority},
		"record's flags":   {unsafe.Offsetof(r.flags), abi.RecordFlags},
		"why":              {unsafe.Offsetof(r.why), abi.RecordWhy},
		"verdict":          {unsafe.Sizeof(a), abi.VerdictSize},
		"action":           {unsafe.Offsetof(a.action), abi.VerdictAction},
		"verdict's flags":  {unsafe.Offsetof(a.flags), abi.VerdictFlags},
		"until":            {unsafe.Offsetof(a.until), abi.VerdictUntil},
		"verdict's state":  {unsafe.Offsetof(a.state), abi.VerdictState},
		"strings":          {unsafe.Offsetof(a.strings), abi.VerdictStrings},
		"exchange, length": {unsafe.Offsetof(a.exchangeLength), abi.VerdictExchangeLen},
		"key, length":      {unsafe.Offsetof(a.keyLength), abi.VerdictKeyLen},
	} {
		if at[0] != at[1] {
			t.Errorf("%s: got %d, want %d", name, at[0], at[1])
		}
	}
}

func TestRecord(t *testing.T) {
	r := record{
		enqueued: -1, expiration: -2, queueTTL: -3, deadline: -4, state: -5, size: 10, deliveries: 11, deaths: 12, queue: 13,
		priority: 255, flags: abi.FlagRedelivered | abi.FlagDLX, why: abi.WhyHead,
	}
	want := Msg{
		Enqueued: -1, Expiration: -2, QueueTTL: -3, Deadline: -4, State: -5, Size: 10, Deliveries: 11, Deaths: 12,
		Priority: 255, Why: WhyHead, Redelivered: true, HasDLX: true, queue: 13, index: 7,
	}
	m := Msg{Persistent: true, Held: 5} // of the message before
	m.read(&r, 7)
	if m != want {
		t.Errorf("got %+v, want %+v", m, want)
	}
}

// A hook that does not touch its verdict gives no opinion, whatever the previous verdict was.
func TestEachMessageStartsWithNoOpinion(t *testing.T) {
	n := 0
	each(1, 3, func(now int64, _ *Msg, v *Verdict) {
		if n++; n == 2 {
			v.Keep(now + 1)
			v.SetState(5)
			v.AskAtHead()
		}
	})
	_, answers := place(3)
	for i, want := range []answer{
		{action: abi.NoOpinion, until: None},
		{action: abi.Keep, flags: abi.SetState | abi.AskAtHead, until: 2, state: 5},
		{action: abi.NoOpinion, until: None},
	} {
		if answers[i] != want {
			t.Errorf("verdict %d: got %+v, want %+v", i, answers[i], want)
		}
	}
}

func TestDeadLetterNamesExchangeAndKey(t *testing.T) {
	var v Verdict
	var a answer
	var text [2 * abi.MaxName]byte
	v.DeadLetter("parking", "lost")
	v.write(&a, &text)
	if got := string(text[:a.exchangeLength+a.keyLength]); a.exchangeLength != 7 || a.keyLength != 4 || got != "parkinglost" {
		t.Errorf("got %q with lengths %d and %d", got, a.exchangeLength, a.keyLength)
	}
}

// Policies can be tested without a broker: nothing is set then.
func TestWithoutABroker(t *testing.T) {
	var m Msg
	if _, ok := m.HeaderText("x"); ok {
		t.Error("a header is there")
	}
	if _, ok := ConfigText("x"); ok {
		t.Error("a setting is there")
	}
	if got := ConfigInt("x", 5) + m.HeaderInt("x", 6) + m.QueueInt("x", 7); got != 18 {
		t.Errorf("the defaults add up to %d, want 18", got)
	}
	Log(LevelError, "nobody hears it")
	Count("x", 1)
	m.Trace("x", "y")
	if m.Hold(8); m.Held != 8 {
		t.Errorf("the message is held until %d, want 8", m.Held)
	}
}
