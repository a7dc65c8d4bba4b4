package disk

import (
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// A disk that is full of messages that expire, while publishers wait for space, may stay full though their dead letters are consumed:
// README.md, "What survives". Nothing is lost, and more space ends it.
func TestMoreSpaceEndsAFullDiskOfDeadLetters(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	strategies := []string{"at-least-once"}
	if os.Getenv(cyclesVariable) != "" {
		strategies = append(strategies, "at-most-once")
	}
	for _, strategy := range strategies {
		t.Run(strategy, func(t *testing.T) {
			f := &full{T: t, trial: trial{nodes: 1, disk: 64, size: 300_000}, unpaid: map[uint64]bool{}, received: map[uint64]bool{}}
			f.arguments = amqp091.Table{"x-message-ttl": 5000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-overflow": "reject-publish"}
			f.arguments["x-dead-letter-strategy"] = strategy
			f.mount()
			f.start()
			c, ch := f.channel()
			_, err := ch.QueueDeclare("dead", true, false, false, false, nil)
			f.must(err)
			f.must(c.Close())
			stop := f.publish()
			f.awaitStandstill()
			time.Sleep(10 * time.Second) // all expire
			stop()
			if out, err := exec.Command("mount", "-o", "remount,size=512M", f.dir).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			end := f.consume("dead")
			if !f.progress(func(now standing) bool { return now.unpaid == 0 }) {
				now := f.standing()
				f.Errorf("%d of %d confirmed messages were not delivered", now.unpaid, now.confirmed)
			}
			if !process.Poll(func() bool { status, _ := f.broker.Health(); return status == http.StatusOK }) {
				status, body := f.broker.Health()
				f.Errorf("after all was taken: %d %s", status, body)
			}
			end()
			f.broker.Stop()
		})
	}
}
