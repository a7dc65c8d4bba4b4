package game

import (
	"context"
	"errors"
	"log/slog"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/block"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/plugins/deadletter"
	"github.com/curfewmq/curfew/plugins/dedup"
	"github.com/curfewmq/curfew/plugins/delay"
	"github.com/curfewmq/curfew/plugins/expires"
	"github.com/curfewmq/curfew/plugins/maxlength"
	"github.com/curfewmq/curfew/plugins/retry"
	"github.com/curfewmq/curfew/plugins/ttl"
	"github.com/curfewmq/curfew/policies"
	"github.com/curfewmq/curfew/sdk/hook"
)

// broker is one life of the broker: all of it but sockets, with one connection.
type broker struct {
	clock clock.Clock
	store *store.Store
	vhost *vhost.VHost
	rules *policies.Rules
	conn  *session.Conn
	out   []byte // from the broker, not yet read
}

// open starts a broker on a disk, with a wall clock that is off by so much.
func open(disk *crashfs.FS, off time.Duration) (*broker, error) {
	var named []chain.Named
	var arguments []hook.Argument
	for _, f := range []hook.Factory{
		ttl.Factory, dedup.Factory, delay.Factory, maxlength.Factory, deadletter.Factory, expires.Factory, retry.Factory,
	} {
		p, _, err := f.New(func(any) error { return nil })
		if err != nil {
			return nil, err
		}
		named, arguments = append(named, chain.Named{Name: f.Name, Plugin: p}), append(arguments, p.Arguments()...)
	}
	c, err := chain.New(named, chain.Options{})
	if err != nil {
		return nil, err
	}
	running, log := clock.New(), slog.New(slog.DiscardHandler)
	b := &broker{clock: func() hook.Instant { return running().Add(off) }, rules: policies.NewRules(arguments, nil)}
	b.store, err = store.Open(context.Background(), store.Options{
		Dir: disk, Durability: seg.Fsync, SegmentSize: 16 << 10, Extent: 8 << 10, Shards: 1, // so small that messages are relocated all the time
		Chain: c, Rules: b.rules, Clock: b.clock, Log: log, Hashing: auth.SHA512,
	})
	if err != nil {
		return nil, err
	}
	b.vhost, _ = b.store.VHost(store.DefaultVHost)
	server := session.NewServer(session.Options{
		Product: "Curfew", Version: "1.0.0", ClusterName: "game", Users: b.store.Users(), VHosts: b.store.VHost,
		ChannelMax: 2047, FrameMax: 131072, MessageMax: 16 << 20, Log: log,
	})
	b.conn = server.Accept(session.Peer{Address: "127.0.0.1:1", Loopback: true}, func() {})
	b.feed([]byte(amqp.ProtocolHeader))
	b.say(0, &amqp.ConnectionStartOK{
		ClientProperties: amqp.Table{{Key: "capabilities", Value: amqp.Table{{Key: "basic.nack", Value: true}, {Key: "consumer_cancel_notify", Value: true}}}},
		Mechanism:        "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US",
	})
	b.conn.Login()(context.Background())
	b.conn.Tick(b.clock())
	b.say(0, &amqp.ConnectionTuneOK{ChannelMax: 2047, FrameMax: 131072})
	b.say(0, &amqp.ConnectionOpen{VirtualHost: "/"})
	_, err = b.hear()
	return b, err
}

// end ends the broker; in good order unless its disk has lost power.
func (b *broker) end(dark bool) error {
	b.conn.Release(b.clock())
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if dark {
		cancel()
	}
	if err := b.store.Close(ctx); !dark {
		return err
	}
	return nil
}

// say sends methods to the broker.
func (b *broker) say(channel uint16, ms ...amqp.Method) {
	var all []byte
	for _, m := range ms {
		all = amqp.AppendMethod(all, channel, m)
	}
	b.feed(all)
}

func (b *broker) feed(data []byte) {
	for len(data) > 0 {
		k := block.New(len(data))
		n := b.conn.Feed(b.clock(), k, k.Buf[:copy(k.Buf, data)])
		k.Release()
		if data = data[n:]; n == 0 {
			return // the connection is closed
		}
	}
}

// event is a method that the broker has sent, and the body that came with it.
type event struct {
	channel uint16
	method  amqp.Method
	body    []byte
}

// hear lets everything happen that follows from what was done, and returns what the broker says about it.
func (b *broker) hear() (events []event, err error) {
	for {
		synctest.Wait()
		b.conn.Tick(b.clock())
		w := b.conn.Writer()
		before := len(b.out)
		for bs, waiting, _ := w.Next(); len(bs) > 0 || len(waiting) > 0; bs, waiting, _ = w.Next() {
			for _, one := range bs {
				b.out = append(b.out, one...)
			}
			for _, c := range waiting {
				c.Wake()
			}
		}
		if len(b.out) == before {
			break
		}
	}
	var size uint64
	for len(b.out) > 0 {
		f, n, err := amqp.NextFrame(b.out, 1<<20)
		if err != nil || n == 0 {
			return nil, errors.Join(errors.New("half a frame"), err)
		}
		switch last := len(events) - 1; f.Type {
		case amqp.FrameMethod:
			m, err := amqp.ParseMethod(f.Payload)
			if err != nil {
				return nil, err
			}
			events = append(events, event{channel: f.Channel, method: m})
		case amqp.FrameHeader:
			h, err := amqp.ParseContentHeader(f.Payload)
			if err != nil {
				return nil, err
			}
			size = h.BodySize
		case amqp.FrameBody:
			if events[last].body = append(events[last].body, f.Payload...); uint64(len(events[last].body)) > size {
				return nil, errors.New("a body that is too long")
			}
		}
		b.out = b.out[n:]
	}
	return events, nil
}
