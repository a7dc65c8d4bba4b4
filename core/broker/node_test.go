package broker

import (
	"context"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/wire"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
)

// newNode returns a node on the test's disk.
func newNode(t *testing.T, disk *crashfs.FS) *node {
	t.Helper()
	o, _ := configured(t, local)
	kept, err := store.Open(t.Context(), store.Options{
		Dir: disk, SegmentSize: 1 << 20, Shards: 1, Chain: o.Chain, Clock: o.Clock, Log: o.Log,
	})
	if err != nil {
		t.Fatal(err)
	}
	server, err := wire.New(wireOptions(setup{Config: o.Config, o: &o}, kept))
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &node{Server: server, store: kept, o: &o, part: noPart{}}
}

// A full disk makes publishers wait, but does not keep the broker from ending.
func TestShutdownWithFullDisk(t *testing.T) {
	disk := crashfs.New(1)
	n := newNode(t, disk)
	conn, err := amqp.Dial("amqp://guest:guest@" + n.Addresses()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	_, err = ch.QueueDeclare("q", true, false, false, false, nil)
	must(err)
	must(ch.Tx())
	fills := n.store.Fills()
	disk.SetSpace(0)
	must(ch.PublishWithContext(t.Context(), "", "q", false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: make([]byte, 2<<20)}))
	committed := make(chan error, 1)
	go func() { committed <- ch.TxCommit() }()
	<-fills // the connection's reader waits for the log
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
}
