package app

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/config"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/wire"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
)

// newNode is a broker on a disk of the test's.
func newNode(t *testing.T, disk *crashfs.FS) *node {
	t.Helper()
	c, err := (&app{plugins: allPlugins(nil)}).load("", []config.Flag{{Name: "--amqp", Key: "listen.amqp", Value: "127.0.0.1:0"}}, chain.Options{})
	if err != nil {
		t.Fatal(err)
	}
	clock, log := clock.New(), slog.New(slog.DiscardHandler)
	kept, err := store.Open(t.Context(), store.Options{
		Dir: disk, SegmentSize: 1 << 20, Shards: 1, Chain: c.chain, Clock: clock, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	server, err := wire.New(wireOptions(setup{configuration: c, log: log, clock: clock}, kept))
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &node{Server: server, store: kept, clock: clock}
}

// A disk that is full keeps publishers waiting, but not the broker from ending.
func TestShutdownWithFullDisk(t *testing.T) {
	disk := crashfs.New(1)
	n := newNode(t, disk)
	conn, err := amqp.Dial("amqp://guest:guest@" + n.Addresses()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	blocked := conn.NotifyBlocked(make(chan amqp.Blocking, 10))
	v := &visitor{t: t, conn: conn}
	if v.Channel, err = conn.Channel(); err != nil {
		t.Fatal(err)
	}
	v.declare("q", true, nil)
	v.must(v.Tx())
	disk.SetSpace(0)
	v.must(v.PublishWithContext(t.Context(), "", "q", false, false, persistent(strings.Repeat("x", 2<<20))))
	committed := make(chan error, 1)
	go func() { committed <- v.TxCommit() }()
	<-blocked // which the alarm came before
	if got := strings.Join(n.Alarms(), " "); got != "disk" {
		t.Errorf("alarms: got %q", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.Shutdown(ctx); err == nil || !strings.Contains(err.Error(), "1 connections did not end in time") {
		t.Errorf("got error %v", err)
	}
	if err := <-committed; err == nil {
		t.Error("the transaction was committed")
	}
	for range blocked {
	}
}
