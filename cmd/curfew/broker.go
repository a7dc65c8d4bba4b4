package main

import (
	"crypto/tls"
	"os"
	"time"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wire"
)

// newBroker makes the AMQP server of a configuration. It does not listen yet.
func newBroker(s setup) (broker, error) {
	users, err := auth.Default()
	if err != nil {
		return nil, err
	}
	clock := queue.NewClock()
	root := vhost.New(vhost.Config{Name: "/", Chain: s.chain, Clock: clock, Log: s.log})
	c := s.Config
	return wire.New(wire.Options{
		AMQP: c.Listen.AMQP, AMQPS: c.Listen.AMQPS,
		TLS: wire.TLS{
			Cert: c.TLS.Cert, Key: c.TLS.Key, CA: c.TLS.CA,
			VerifyPeer: c.TLS.VerifyPeer, MinVersion: tlsVersion(c.TLS.MinVersion),
		},
		Session: session.Options{
			Product: c.Compat.Product, Version: c.Compat.Version, ClusterName: clusterName(),
			Users:  users,
			VHosts: func(name string) (*vhost.VHost, bool) { return root, name == root.Name() },

			ChannelMax: uint16(c.Limits.Channels), FrameMax: int(c.Limits.FrameMax), MessageMax: int(c.Limits.MessageSize),
			Heartbeat: uint16(c.Limits.Heartbeat / time.Second), Connections: c.Limits.Connections,
			ConsumerTimeout: c.Limits.ConsumerTimeout, GuestLoopbackOnly: c.Auth.GuestLoopbackOnly,
			Log: s.log,
		},
		Clock:            clock,
		HandshakeTimeout: c.Limits.HandshakeTimeout,
		MemoryLimit:      int64(min(s.watermark, 1<<62)),
	})
}

func tlsVersion(s string) uint16 {
	if s == "1.3" {
		return tls.VersionTLS13
	}
	return tls.VersionTLS12
}

// clusterName is how the broker calls itself where there are several: as RabbitMQ does, after its machine.
func clusterName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return "curfew@" + host
}
