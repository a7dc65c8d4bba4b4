package store

import (
	"log/slog"
	"time"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// progress counts replayed entries, messages, queues and bytes, and logs the counts once a second.
type progress struct {
	log             *slog.Logger
	clock           clock.Clock
	began, reported hook.Instant
	notify          func(shard uint32, done, total int64) // nil = no call

	entries, messages, queues int
	bytes                     int64
}

func (p *progress) count(entry []byte) {
	p.entries++
	p.bytes += int64(len(entry))
}

// add adds the counts of one shard.
func (p *progress) add(of *progress) {
	p.entries, p.messages, p.queues, p.bytes = p.entries+of.entries, p.messages+of.messages, p.queues+of.queues, p.bytes+of.bytes
}

func (p *progress) report(shard uint32, done, total int64) {
	now := p.clock()
	if now.Sub(p.reported) < time.Second {
		return
	}
	p.reported = now
	p.log.Info("recovering", "shard", shard, "bytes", done, "of", total, "seconds", now.Sub(p.began).Seconds())
	if p.notify != nil {
		p.notify(shard, done, total)
	}
}

// summarise logs the recovery, and records it as a span unless spans is nil.
func (p *progress) summarise(spans *telemetry.Spans) {
	if p.entries == 0 {
		return
	}
	ended := p.clock()
	p.log.Info("recovered", "queues", p.queues, "messages", p.messages, "entries", p.entries, "bytes", p.bytes,
		"seconds", ended.Sub(p.began).Seconds())
	if spans != nil {
		spans.Recovered(&telemetry.Recovery{
			Began: p.began, Ended: ended, Bytes: p.bytes, Entries: p.entries, Messages: p.messages, Queues: p.queues,
		})
	}
}
