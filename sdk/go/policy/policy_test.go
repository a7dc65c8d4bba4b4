package policy

import (
	"encoding/binary"
	"testing"

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
		{struct{}{}, 0},
	} {
		if got := hooksOf(tc.policy); got != tc.want {
			t.Errorf("%T: got %b, want %b", tc.policy, got, tc.want)
		}
	}
}

func TestRegisterRefusesWhatHasNoHook(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a type without hooks was registered")
		}
	}()
	Register(struct{}{})
}

func TestRecord(t *testing.T) {
	b := make([]byte, abi.RecordSize)
	le := binary.LittleEndian
	for i, at := range []int{abi.RecordEnqueued, abi.RecordExpiration, abi.RecordQueueTTL, abi.RecordDeadline, abi.RecordState} {
		le.PutUint64(b[at:], uint64(int64(-1-i)))
	}
	for i, at := range []int{abi.RecordSizeOf, abi.RecordDeliveries, abi.RecordDeaths, abi.RecordQueue} {
		le.PutUint32(b[at:], uint32(i+10))
	}
	b[abi.RecordPriority], b[abi.RecordFlags], b[abi.RecordWhy] = 255, abi.FlagRedelivered|abi.FlagDLX, abi.WhyHead
	want := Msg{
		Enqueued: -1, Expiration: -2, QueueTTL: -3, Deadline: -4, State: -5, Size: 10, Deliveries: 11, Deaths: 12,
		Priority: 255, Why: WhyHead, Redelivered: true, HasDLX: true, queue: 13, index: 7,
	}
	var m Msg
	m.read(b, 7)
	if m != want {
		t.Errorf("got %+v, want %+v", m, want)
	}
}

// A hook that leaves its verdict alone says nothing, whatever the one before said.
func TestEachMessageStartsWithNoOpinion(t *testing.T) {
	n := 0
	each(1, 3, func(now int64, _ *Msg, v *Verdict) {
		if n++; n == 2 {
			v.Keep(now + 1)
			v.SetState(5)
			v.AskAtHead()
		}
	})
	le := binary.LittleEndian
	for i, want := range []struct {
		action, flags uint32
		until         int64
	}{{abi.NoOpinion, 0, None}, {abi.Keep, abi.SetState | abi.AskAtHead, 2}, {abi.NoOpinion, 0, None}} {
		b := buffer[3*abi.RecordSize+i*abi.VerdictSize:]
		action, flags, until := le.Uint32(b[abi.VerdictAction:]), le.Uint32(b[abi.VerdictFlags:]), int64(le.Uint64(b[abi.VerdictUntil:]))
		if action != want.action || flags != want.flags || until != want.until {
			t.Errorf("verdict %d: got %d, %d, %d; want %+v", i, action, flags, until, want)
		}
	}
}

func TestDeadLetterNamesExchangeAndKey(t *testing.T) {
	var v Verdict
	var text [2 * abi.MaxName]byte
	b := make([]byte, abi.VerdictSize)
	v.DeadLetter("parking", "lost")
	v.write(b, &text)
	le := binary.LittleEndian
	e, k := le.Uint16(b[abi.VerdictExchangeLen:]), le.Uint16(b[abi.VerdictKeyLen:])
	if got := string(text[:e+k]); e != 7 || k != 4 || got != "parkinglost" {
		t.Errorf("got %q with lengths %d and %d", got, e, k)
	}
}

// Policies can be tested where there is no broker: nothing is set then.
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
}
