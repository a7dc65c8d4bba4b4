package disk

import (
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/core/campaign"
	"github.com/curfewmq/curfew/tests/process"
)

// deadLetterTrials returns the sizes of messages and the dead-letter strategies to try.
func deadLetterTrials(t *testing.T) (all []trial, strategies []string) {
	t.Helper()
	campaign.Size(t, cyclesVariable, 0, 1) // which means nothing here but whether there is one
	if os.Getenv(cyclesVariable) == "" {
		return []trial{{nodes: 1, disk: 64, size: 20_000}, {nodes: 1, disk: 64, size: 300_000}}, []string{"at-most-once", "at-least-once"}
	}
	for _, size := range []int{1000, 20_000, 300_000, 2_000_000} {
		for _, strategy := range []string{"at-most-once", "at-least-once"} {
			all, strategies = append(all, trial{nodes: 1, disk: 64, size: size}), append(strategies, strategy)
		}
	}
	return all, strategies
}

// A disk that was full of messages which expired, while publishers waited for space, stayed full though their dead letters were consumed.
func TestCampaignFullDiskOfDeadLetters(t *testing.T) {
	trials, strategies := deadLetterTrials(t)
	for i, tr := range trials {
		t.Run(fmt.Sprintf("messages of %d bytes, %s", tr.size, strategies[i]), func(t *testing.T) {
			f := &full{T: t, trial: tr, unpaid: map[uint64]bool{}, received: map[uint64]bool{}}
			f.arguments = amqp091.Table{
				"x-message-ttl": 3000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead",
				"x-dead-letter-strategy": strategies[i], "x-overflow": "reject-publish",
			}
			f.mount()
			f.start()
			c, ch := f.channel()
			_, err := ch.QueueDeclare("dead", true, false, false, false, nil)
			f.must(err)
			f.must(c.Close())
			f.consumeDeadLetters()
		})
	}
}

func (f *full) consumeDeadLetters() {
	stop := f.publish()
	f.broker.Await("disk alarm: publishers wait")
	time.Sleep(10 * time.Second) // all expire
	f.owe()
	before := f.standing().confirmed
	end := f.consume("dead")
	if !f.progress(func(now standing) bool { return now.owed == 0 && now.confirmed >= before+20 }) {
		now := f.standing()
		f.Errorf("of the messages that were confirmed before somebody consumed %d were not delivered; %d more are confirmed since",
			now.owed, now.confirmed-before)
	}
	stop()
	if !f.progress(func(now standing) bool { return now.unpaid == 0 && f.drained() }) {
		now := f.standing()
		f.Errorf("%d of %d confirmed messages were not delivered", now.unpaid, now.confirmed)
	}
	if !process.Poll(func() bool { status, _ := f.broker.Health(); return status == http.StatusOK }) {
		status, body := f.broker.Health()
		f.Errorf("after all was taken: %d %s", status, body)
	}
	end()
	now := f.standing()
	f.Logf("%d messages confirmed, %d delivered", now.confirmed, now.received)
	f.end()
}
