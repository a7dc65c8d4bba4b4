package queue

import (
	"testing"
	"testing/synctest"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Two brokers in one process had one file for bodies, the second one's, where those of the first one were not, and one line for dead letters.
func TestBrokersShareNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const messages = 4000
		var brokers [2]*Broker
		var queues [2]*Mailbox
		for n := range brokers {
			b := new(Broker)
			if err := b.SpillTo(t.TempDir(), 0, nil, nil); err != nil {
				t.Fatal(err)
			}
			defer func() {
				synctest.Wait() // disk space is returned in the background
				_ = b.spill.Close()
			}()
			cfg := &Config{Profile: &Profile{Settings: func(string) (any, bool) { return nil, false }}, Name: "q"}
			brokers[n], queues[n] = b, b.NewMailbox(cfg, chainOf(t, hook.Hooks{}), &host{}, clock.New())
			for i := range uint64(messages) {
				queues[n].Publish(batchOf(patterned(i+uint64(n)*messages, 1024)))
			}
		}
		for n, m := range queues {
			if st := stats(t, m); st.InMemory == st.Ready {
				t.Errorf("broker %d: all %d bodies are in memory", n, st.Ready)
			}
			for i := range uint64(messages) {
				wantPatterned(t, m, i+uint64(n)*messages)
			}
		}
		brokers[0].underway.bytes.Add(trafficLimit)
		if !brokers[1].underway.admit(queues[1]) || brokers[1].UnderwayBytes() != departBytes {
			t.Error("a broker waits for the dead letters of another")
		}
		for _, m := range queues {
			if err := m.Do(func(q *Queue, _ hook.Instant) { q.close() }); err != nil {
				t.Error(err)
			}
		}
	})
}

// wantPatterned takes a message from a queue, which must be that of a number.
func wantPatterned(t *testing.T, m *Mailbox, id uint64) {
	t.Helper()
	if err := m.Do(func(q *Queue, now hook.Instant) {
		if !q.Get(now, &Consumer{NoAck: true}, func(d Delivery, _ int) {
			if string(d.Body) != string(patterned(id, 1024).Body) {
				t.Errorf("message %d came as message %d, or changed", id, idOf(d.Body))
			}
		}) {
			t.Errorf("message %d is missing", id)
		}
	}); err != nil {
		t.Fatal(err)
	}
}
