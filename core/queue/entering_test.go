package queue

import (
	"testing"
	"testing/synctest"

	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/sdk/hook"
)

// smallDisk is a broker with a log on a disk of so many bytes.
func smallDisk(t *testing.T, bytes int64) (*Broker, *journal.Writer) {
	t.Helper()
	disk := crashfs.New(1)
	disk.SetSpace(bytes)
	engine, err := seg.New(disk, seg.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := new(Broker)
	unit := engine.SegmentSize() / 4
	w, err := journal.Open(t.Context(), engine, 1, func(uint32, wlog.Index, []byte) error { return nil }, journal.Options{
		Extent: unit, Entry: int(unit), Unit: unit, Size: wlog.EntrySize, Space: b.Space(), Moves: MovedBytes,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Recovered(nil)
	t.Cleanup(func() {
		_ = w.Close(t.Context())
		_ = engine.Close()
	})
	return b, w
}

// fan is a host whose dead letters go to so many queues.
type fan struct {
	told
	queues int
	sent   []string // their bodies
}

func (f *fan) DeadLetter(_ *Config, _ hook.Instant, ds []DeadLetter, t Tracking) {
	for i := range ds {
		ds[i].Sent, ds[i].Outcome = f.queues, telemetry.DeadLettered
	}
	if !t.Expect(f.queues, ds) {
		return
	}
	for i := range ds {
		f.sent = append(f.sent, string(ds[i].Body[:1]))
	}
}

func (*fan) Deleted(*Mailbox, Deletion) {}

// Dead letters that went to two queues were sent without asking for the space of the second copy. It was taken of what settlements and
// relocations need: then nothing could be written any more, and the disk stayed full. They also waited, on a small disk, until there was
// space for as many as leave at a time.
func TestDeadLettersToTwoQueuesAskForTheirSpace(t *testing.T) {
	for _, tc := range []struct{ size, messages, sent int }{{400_000, 1, 0}, {150_000, 2, 2}} {
		synctest.Test(t, func(t *testing.T) {
			b, _ := smallDisk(t, 1<<20)
			f := &fan{queues: 2}
			h := ttlHooks(hook.ScanAnywhere, &hook.Target{Exchange: "x"})
			q, _ := passive(t, Config{}, h)
			q.host, q.mailbox.broker = f, b
			for range tc.messages {
				m := Message{Routing: origin, Props: []byte{0, 0}, Body: make([]byte, tc.size), Expiration: hook.LimitOf(1)}
				q.enqueue(second, batchOf(m))
			}
			for now := 2 * second; now < 4*second; now += second / 10 {
				q.tick(now)
			}
			if len(f.sent) != tc.sent || q.messages() != tc.messages-tc.sent {
				t.Errorf("of %d messages of %d bytes %d were sent, and %d are left; want %d sent", tc.messages, tc.size, len(f.sent), q.messages(), tc.sent)
			}
		})
	}
}

// Without space for all its copies, a message that was dead-lettered as it entered was dropped, although nothing else has it. The next dead
// letters of the queue were sent, and taken for ones that were not: they were sent again.
func TestWhatLeavesAsItEntersIsSentWithoutSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := smallDisk(t, 1<<20)
		f := &fan{queues: 20}
		full := true
		q, _ := passive(t, Config{}, hook.Hooks{
			OnEnqueue: func(now hook.Instant, _ []hook.Message, vs []hook.Verdict) {
				for i := range vs {
					if vs[i].Deadline = now.Add(1); full {
						vs[i] = hook.Verdict{Action: hook.Route, Nack: true, Reason: hook.ReasonMaxLen, Target: &hook.Target{Exchange: "x"}}
					}
				}
			},
			OnHead: func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) {
				for i := range vs {
					vs[i] = hook.Verdict{Action: hook.Route, Reason: hook.ReasonExpired, Target: &hook.Target{Exchange: "x"}}
				}
			},
		})
		q.host, q.mailbox.broker = f, b
		body := make([]byte, 100_000)
		body[0] = 'a'
		q.enqueue(second, batchOf(Message{Routing: origin, Props: []byte{0, 0}, Body: body}))
		full, f.queues = false, 1
		q.enqueue(second, batchOf(Message{Routing: origin, Props: []byte{0, 0}, Body: []byte("b")}))
		q.tick(3 * second)
		q.tick(4 * second)
		if len(f.sent) != 2 || f.sent[0] != "a" || f.sent[1] != "b" || q.messages() != 0 {
			t.Errorf("sent are %q, and %d messages are left", f.sent, q.messages())
		}
	})
}
