package broker

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// expiryStrategies are what a queue's strategy may be. The module is one of the examples.
var expiryStrategies = []string{"deadline", "rabbitmq", "lavinmq", "ottermq", "wasm/header"}

// features are the arguments of queues that an expiry strategy has to get along with.
var features = map[string]amqp091.Table{
	"held":           nil,
	"priority":       {"x-max-priority": 4},
	"single":         {"x-single-active-consumer": true},
	"redrive":        nil,
	"lease":          {"x-delivery-lease": 300},
	"retry":          {"x-delayed-retry-type": "all", "x-delayed-retry-min": 3600000},
	"drop-head":      {"x-max-length": 2},
	"reject-publish": {"x-max-length": 2, "x-overflow": "reject-publish"},
	"reject-to-dlx":  {"x-max-length": 2, "x-overflow": "reject-publish-dlx"},
	"quorum":         {"x-queue-type": "quorum", "x-delivery-limit": 3},
	"held-priority":  {"x-max-priority": 2, "x-delivery-delay": 3600000},
}

// Each expiry strategy works with each feature: messages are enqueued, delivered, expire, are purged and redriven, the strategy is
// replaced by each other one, and all of it is there after a restart. A strategy that looked for ready messages among held ones
// ended the broker.
func TestEachStrategyWithEachFeature(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	module, err := filepath.Abs(filepath.Join(process.Root(t), "wasm-examples", "header-deadline", "header.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	yaml := fmt.Sprintf("plugins:\n  wasm:\n    modules:\n      header: {path: %q, grants: [headers]}\n", module)
	b := process.Start(t, yaml, "--data", dir)
	var all []*strategyGame
	for _, strategy := range expiryStrategies {
		for _, feature := range slices.Sorted(maps.Keys(features)) {
			all = append(all, &strategyGame{t: t, broker: b, queue: filepath.Base(strategy) + "-" + feature, strategy: strategy, feature: feature})
		}
	}
	each := func(do func(g *strategyGame)) {
		var players sync.WaitGroup
		for part := range slices.Chunk(all, 8) {
			players.Go(func() {
				for _, g := range part {
					do(g)
				}
			})
		}
		players.Wait()
	}
	each((*strategyGame).before)
	b.Kill()
	b = process.Start(t, yaml, "--data", dir)
	each(func(g *strategyGame) {
		g.broker = b
		g.after()
	})
	b.Ask(t, http.StatusOK, http.MethodGet, "overview", nil)
}

// strategyGame is a durable queue with a strategy and a feature, and what has become of its messages.
type strategyGame struct {
	t                        *testing.T
	broker                   *process.Process
	queue, strategy, feature string
	ch                       *amqp091.Channel

	entered, acked, purged, cancelled int
}

// before is what happens before the restart.
func (g *strategyGame) before() {
	args := maps.Clone(features[g.feature])
	if args == nil {
		args = amqp091.Table{}
	}
	args["x-dead-letter-exchange"], args["x-dead-letter-routing-key"] = "", g.dead()
	g.adopt(g.strategy)
	g.open()
	g.declare(g.dead(), nil)
	g.declare(g.queue, args)
	g.publish("held", "", time.Hour)
	g.alive("held alone")
	g.publish("plain", "", 0)
	g.publish("brief", "20", 0)
	g.publish("brief and held", "20", time.Hour)
	g.publish("more", "", 0)
	g.alive("filled")
	g.deliver()
	g.alive("delivered")
	for _, other := range expiryStrategies {
		g.adopt(other)
		g.alive("as " + other)
		g.publish("as "+other, "3600000", 0)
		g.alive("filled as " + other)
	}
	g.adopt(g.strategy)
	g.redrive()
	g.alive("redriven")
	n, err := g.ch.QueuePurge(g.queue, false)
	if err != nil {
		g.t.Error(g.queue, err)
	}
	g.purged += n
	g.alive("purged")
	g.publish("left", "", 0)
	g.alive("left")
	_ = g.ch.Close()
}

// after is what happens after the restart.
func (g *strategyGame) after() {
	g.open()
	g.alive("restarted")
	g.publish("brief", "1", 0)
	for range 2 {
		g.deliver()
	}
	g.alive("delivered again")
	var answer struct{ Cancelled int }
	path := "queues/%2F/" + g.queue + "/held"
	if err := json.Unmarshal(g.broker.Ask(g.t, http.StatusOK, http.MethodDelete, path, nil), &answer); err != nil {
		g.t.Error(g.queue, err)
	}
	g.cancelled += answer.Cancelled
	g.alive("without held ones")
	if _, held := g.counts(); held != 0 {
		g.t.Errorf("%s: %d messages are held after all were cancelled", g.queue, held)
	}
	_ = g.ch.Close()
}

func (g *strategyGame) dead() string { return "dead-" + g.queue }

func (g *strategyGame) open() {
	g.ch = channelOf(g.t, g.broker)
	if err := g.ch.Confirm(false); err != nil {
		g.t.Error(g.queue, err)
	}
}

func (g *strategyGame) declare(queue string, args amqp091.Table) {
	if _, err := g.ch.QueueDeclare(queue, true, false, false, false, args); err != nil {
		g.t.Error(g.queue, err)
	}
}

// adopt gives the queue a strategy, by a policy of its own.
func (g *strategyGame) adopt(strategy string) {
	body := map[string]any{
		"pattern": "^" + g.queue + "$", "apply-to": "queues", "definition": map[string]any{"expiry-strategy": strategy},
	}
	status, answer := manage(g.t, g.broker, http.MethodPut, "policies/%2F/"+g.queue, encoded(body))
	if status != http.StatusCreated && status != http.StatusNoContent {
		g.t.Errorf("%s as %s: %d %s", g.queue, strategy, status, answer)
	}
}

func encoded(v any) string {
	b, _ := json.Marshal(v) //nolint:errchkjson // maps of strings
	return string(b)
}

// publish publishes a message and counts it, if it was taken or dead-lettered.
func (g *strategyGame) publish(body, expiration string, hold time.Duration) {
	m := amqp091.Publishing{Body: []byte(body), DeliveryMode: amqp091.Persistent, Expiration: expiration, Priority: uint8(len(body) % 4)}
	if hold > 0 {
		m.Headers = amqp091.Table{"x-deliver-after": hold.Milliseconds()}
	}
	c, err := g.ch.PublishWithDeferredConfirm("", g.queue, false, false, m)
	if err != nil {
		g.t.Error(g.queue, err)
		return
	}
	if c.Wait() || g.feature == "reject-to-dlx" {
		g.entered++
	}
}

// deliver gives one message back, as far as there is one, and acknowledges the next, by a consumer.
func (g *strategyGame) deliver() {
	ch := channelOf(g.t, g.broker)
	defer func() { _ = ch.Close() }()
	if err := ch.Qos(1, 0, false); err != nil {
		g.t.Error(g.queue, err)
	}
	ds, err := ch.Consume(g.queue, "", false, false, false, false, nil)
	if err != nil {
		g.t.Error(g.queue, err)
		return
	}
	if d, ok := soon(ds); ok {
		_ = d.Nack(false, true)
		if d, ok = soon(ds); ok {
			_ = d.Ack(false)
			g.acked++
		}
	}
	_ = process.Poll(func() bool { return g.whole() })
}

// soon returns a delivery, if one comes.
func soon(ds <-chan amqp091.Delivery) (d amqp091.Delivery, ok bool) {
	select {
	case d, ok = <-ds:
		return d, ok
	case <-time.After(time.Second):
		return d, false
	}
}

// redrive moves what is ready to where dead letters go.
func (g *strategyGame) redrive() {
	if g.feature != "redrive" {
		return
	}
	body := encoded(map[string]any{"to": map[string]any{"queue": g.dead()}})
	status, answer := manage(g.t, g.broker, http.MethodPost, "queues/%2F/"+g.queue+"/redrive", body)
	if status != http.StatusAccepted {
		g.t.Errorf("%s: redrive: %d %s", g.queue, status, answer)
		return
	}
	if !process.Poll(func() bool { ready, _ := g.counts(); return ready == 0 }) {
		g.t.Errorf("%s: not all is redriven", g.queue)
	}
}

// counts returns how many messages are in the queue that can be delivered, or are, and how many are held.
func (g *strategyGame) counts() (there, held int) {
	var q struct {
		Ready   int `json:"messages_ready"`
		Unacked int `json:"messages_unacknowledged"`
		Held    int `json:"messages_held"`
	}
	if err := json.Unmarshal(g.broker.Ask(g.t, http.StatusOK, http.MethodGet, "queues/%2F/"+g.queue, nil), &q); err != nil {
		g.t.Error(g.queue, err)
	}
	return q.Ready + q.Unacked, q.Held
}

// whole reports whether each message is in the queue, or left it in a way that was counted.
func (g *strategyGame) whole() bool {
	dead, err := g.ch.QueueDeclarePassive(g.dead(), true, false, false, false, nil)
	if err != nil {
		g.t.Error(g.queue, err)
		return true
	}
	there, held := g.counts()
	return g.entered == g.acked+g.purged+g.cancelled+dead.Messages+there+held
}

// alive fails unless the queue runs and has lost nothing.
func (g *strategyGame) alive(when string) {
	var q struct{ State string }
	if err := json.Unmarshal(g.broker.Ask(g.t, http.StatusOK, http.MethodGet, "queues/%2F/"+g.queue, nil), &q); err != nil || q.State != "running" {
		g.t.Errorf("%s, %s: it is %s (%v)", g.queue, when, q.State, err)
	}
	if !process.Poll(g.whole) {
		there, held := g.counts()
		g.t.Errorf("%s, %s: %d entered; %d there, %d held, %d acknowledged, %d purged, %d cancelled", g.queue, when, g.entered, there, held, g.acked, g.purged, g.cancelled)
	}
}
