package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/cluster"
	"github.com/curfewmq/curfew/core/config"
	"github.com/curfewmq/curfew/core/mgmt"
	"github.com/curfewmq/curfew/core/mgmt/probe"
	"github.com/curfewmq/curfew/core/peer"
	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/wire"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// member is the broker's part in its cluster: the state that it shares with other nodes, and the ways to reach them.
type member struct {
	*cluster.Node
	tls     *peer.TLS // nil = nodes connect without TLS
	listens net.Addr  // for other nodes
	log     *slog.Logger
	advance http.Transport // sends requests to the APIs of other nodes
	api     handlerSwitch  // answers the requests of other nodes
	server  *http.Server
	asked   *arrivals
	space   atomic.Pointer[store.Store] // receives shortages of disk space; nil = it is not open yet
	unkeep  context.CancelFunc          // ends keepFormats
	keeping sync.WaitGroup
	amqp    atomic.Pointer[wire.Server] // serves connections that other nodes hand over; nil = not yet
}

// join makes the broker a node of its cluster. At the very first start it waits for all other nodes.
func join(ctx context.Context, s setup) (*member, error) {
	c := &s.Cluster
	m := &member{log: s.o.Log}
	if c.TLS.Cert != "" {
		var err error
		if m.tls, err = peer.LoadTLS(peerTLS(s.Config)); err != nil {
			return nil, err
		}
	}
	dir, err := vfs.Make(cluster.Folder(s.Data.Dir))
	if err != nil {
		return nil, dataDirError(s.Data.Dir, err)
	}
	listener, err := wire.Listen(ctx, s.o.Log, "cluster.listen", c.Listen, 0)
	if err != nil {
		return nil, err
	}
	s.o.Log.Info("listening", "key", "cluster.listen", "address", listener.Addr().String())
	m.listens = listener.Addr()
	m.asked = &arrivals{conns: make(chan net.Conn), closed: make(chan struct{}), open: map[*arrival]struct{}{}}
	m.Node, err = cluster.Open(ctx, cluster.Options{
		Dir: dir, Nodes: c.Nodes, Advertise: c.Advertise, Name: c.Name, Election: c.Election, Stall: c.DiskStall, Shards: uint32(c.Shards),
		Listener: listener, TLS: m.tls, Version: s.o.Program.Version, Format: cmp.Or(s.o.Program.Format, cluster.Format), Clock: s.o.Clock, Log: s.o.Log, Disk: seg.Options{Events: m.events(s)},
		Replaced: m.replaced, Crowded: m.crowded, Silent: m.silent,
	})
	if err != nil {
		return nil, err
	}
	m.unkeep = func() {}
	m.serveAPI()
	return m, nil
}

// events returns the handlers for reports of the local logs.
func (m *member) events(s setup) seg.Events {
	return seg.Events{
		Space: func(shard uint32, low *seg.Shortage) {
			if st := m.space.Load(); st != nil {
				st.SetSpace(shard, low)
			}
		},
		Cut: func(shard uint32, file string, offset int64) {
			s.o.Log.Info("the end of a log was not written completely, and is dropped; the broker had not confirmed it", "shard", shard, "file", file, "offset", offset)
		},
		Progress: s.o.Recovering,
	}
}

// crowded passes on that another node lacks disk space for a shard.
func (m *member) crowded(shard uint32, low bool) {
	if st := m.space.Load(); st != nil {
		st.SetOthersSpace(shard, low)
	}
}

// storeOptions adds the cluster to the options of a store.
func (m *member) storeOptions(s setup, o *store.Options) {
	o.Cluster, o.Files = m.Engine(), m.Files()
	o.Shards, o.ClusterName = s.Cluster.Shards, s.Cluster.Name
	for _, n := range m.Members() {
		o.Members = append(o.Members, store.Member{Number: n.ID, Address: n.Address, Name: nameOf(n.Address), Format: cluster.FirstFormat})
	}
	o.Owned = func(_ context.Context, r *store.Registry) error {
		return configureMembers(s, r) //nolint:contextcheck // changes take none
	}
	o.GiveUp = m.giveUp
}

// giveUp transfers a shard that this node cannot serve to another node.
func (m *member) giveUp(shard uint32) {
	go func() {
		const patience = 10 * time.Second
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		var errs error
		for _, n := range m.Members() {
			if n.ID == m.Self().ID {
				continue
			}
			err := m.Engine().Transfer(ctx, shard, n.ID)
			if err == nil {
				return
			}
			errs = errors.Join(errs, fmt.Errorf("%s: %w", n.Address, err))
		}
		m.log.Warn("no other node takes over a shard that this node cannot serve", "shard", shard, "error", errs)
	}()
}

// keep runs keepFormats and keepSpread until end is called, and makes the registry the
// source of the cluster's members.
func (m *member) keep(ctx context.Context, st *store.Store, now clock.Clock) {
	r := st.Registry()
	ctx, m.unkeep = context.WithCancel(context.WithoutCancel(ctx))
	m.keeping.Go(func() { m.keepFormats(ctx, r) })
	m.keeping.Go(func() { m.keepSpread(ctx, st, now) })
	m.Follow(roster{r, m}) //nolint:contextcheck // until the node ends
}

// registryPatience is how long a starting node waits for a majority, without which it can serve no client.
const registryPatience = 10 * time.Second

// awaitCluster waits until this node knows the cluster's registry and the owners of all
// shards. It gives up after registryPatience, so that the API of a node that starts alone
// shows that it is alone.
func (m *member) awaitCluster(ctx context.Context, r *store.Registry) {
	ctx, cancel := context.WithTimeout(ctx, registryPatience)
	defer cancel()
	for _, known := range []<-chan struct{}{r.Ready(), m.owned(ctx)} {
		select {
		case <-known:
		case <-ctx.Done():
			m.log.Warn("this node does not know the owners of all shards yet: it serves no clients until a majority of the nodes runs and it has received the entries that it lacks", "nodes", strings.Join(m.addresses(), ","))
			return
		}
	}
}

// owned returns a channel that is closed once the owners of all shards are known.
func (m *member) owned(ctx context.Context) <-chan struct{} {
	all, unknown := make(chan struct{}), map[uint32]bool{}
	var once sync.Once
	for _, r := range m.Engine().Status() {
		unknown[r.Shard] = true
	}
	stop := m.Engine().Owners(func(o wlog.Ownership) { // one call at a time
		if o.Owner != 0 {
			delete(unknown, o.Shard)
		}
		if len(unknown) == 0 {
			once.Do(func() { close(all) })
		}
	})
	context.AfterFunc(ctx, stop)
	return all
}

// addressOf returns the address of a node, or its number if it is no member.
func (m *member) addressOf(node wlog.NodeID) string {
	for _, n := range m.Members() {
		if n.ID == node {
			return n.Address
		}
	}
	return strconv.FormatUint(uint64(node), 10)
}

func (m *member) addresses() (all []string) {
	for _, n := range m.Members() {
		all = append(all, n.Address)
	}
	return all
}

// wireOptions adds to a server's options that other nodes serve some vhosts.
func (m *member) wireOptions(s setup, st *store.Store, o *wire.Options) {
	r := st.Registry()
	o.Dial = m.dial
	o.Session.ClusterName = s.Cluster.Name
	o.Session.Home = func(vhost string) (session.Home, bool) {
		h, known := st.Home(vhost)
		return session.Home(h), known
	}
	o.Session.Applied, o.Session.WaitApplied, o.Session.Fresh = r.Applied, r.WaitApplied, r.Fresh
}

var _ part = (*member)(nil)

// listener implements [part].
func (m *member) listener() (l mgmt.Listener, ok bool) {
	l = mgmt.Listener{Protocol: "clustering", Address: m.listens}
	if m.tls != nil {
		l.Files = m.tls.Files()
	}
	return l, true
}

// reloadTLS implements [part].
func (m *member) reloadTLS() error {
	if m.tls == nil {
		return nil
	}
	return m.tls.Reload()
}

// manage implements [part]. Policies that were loaded at runtime are in the registry.
func (m *member) manage(n *node, o *mgmt.Options) {
	v := &clusterView{member: m, store: n.store, amqp: n.Server, version: n.o.Program.Version}
	o.Peers, o.Placements, o.Replicas, o.PolicyFiles = v, v, v, ""
}

// leave implements [part].
func (m *member) leave(ctx context.Context, st *store.Store) {
	flush, cancel := context.WithTimeout(ctx, handOverTime)
	st.Flush(flush)
	cancel()
	m.Leave(ctx)
}

// alarms implements [part].
func (m *member) alarms(r *store.Registry, known []string) (all []string) {
	if r.Owner() == 0 {
		all = append(all, probe.Alone)
	}
	for _, s := range m.Engine().Status() { // a replica that ended has a failed disk, whichever node owns the shard
		if name := fmt.Sprintf("shard %d", s.Shard); s.Err != nil && !errors.Is(s.Err, wlog.ErrClosed) && !slices.Contains(known, name) {
			all = append(all, name)
		}
	}
	if m.Status().Skew.Level == peer.Barred {
		all = append(all, probe.Clock)
	}
	return all
}

// serve passes clients' connections that other nodes have accepted to the server.
func (m *member) serve(s *wire.Server) {
	m.amqp.Store(s)
	m.Serve(peer.Relay, s.Adopt)
}

// replaced closes the connections of a former member.
func (m *member) replaced(former wlog.NodeID) {
	if s := m.amqp.Load(); s != nil {
		s.HangUp(former)
	}
	m.asked.hangUp(former)
}

// silent closes the connections that a silent node has handed over. Either the node is cut
// off, and has closed them at its side, or it stands still. Otherwise they would last for
// minutes, and their unacknowledged messages would wait as long.
func (m *member) silent(node wlog.NodeID) {
	s := m.amqp.Load()
	if s == nil {
		return
	}
	if n := s.HangUp(node); n > 0 {
		m.log.Warn("connections closed: the node through which their clients came is silent", "node", m.addressOf(node), "connections", n)
	}
}

// roster is the registry as the source of the cluster's members.
type roster struct {
	*store.Registry
	member *member
}

var _ cluster.Roster = roster{}

// Seats implements [cluster.Roster].
func (r roster) Seats() (all []peer.Node) {
	for _, m := range r.Members() {
		all = append(all, peer.Node{ID: m.Number, Address: m.Address})
	}
	return all
}

// Seat implements [cluster.Roster]. Until the new node has stated which format of logs it
// reads, its entry has the format of the former node.
func (r roster) Seat(former wlog.NodeID, by peer.Node) error {
	m := store.Member{Number: by.ID, Address: by.Address, Name: nameOf(by.Address), Format: int64(r.member.Formats()[by.ID])}
	for _, known := range r.Members() {
		if known.Number == former && m.Format == 0 {
			m.Format = known.Format
		}
	}
	return r.ReplaceMember(former, m)
}

// dial opens a stream for a client's connection to the node that serves its vhost.
func (m *member) dial(ctx context.Context, to wlog.NodeID) (net.Conn, error) {
	return m.Dial(ctx, to, peer.Relay)
}

// end ends the node's part in the cluster.
func (m *member) end(ctx context.Context) error {
	m.unkeep()
	m.keeping.Wait()
	_ = m.server.Close() // other nodes repeat their requests elsewhere
	m.advance.CloseIdleConnections()
	return m.Close(ctx)
}

// serveAPI answers requests of other nodes. Until open is called, the answer is that the broker is starting.
func (m *member) serveAPI() {
	m.api.set(mgmt.Starting())
	m.server = mgmt.Server(&m.api, m.log, 0)
	m.advance.DisableCompression, m.advance.IdleConnTimeout, m.advance.MaxIdleConnsPerHost = true, time.Minute, 16
	m.advance.DialContext = func(ctx context.Context, _, host string) (net.Conn, error) {
		number, _, err := net.SplitHostPort(host)
		if err != nil {
			return nil, err
		}
		id, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			return nil, err
		}
		return m.Dial(ctx, wlog.NodeID(id), peer.HTTP)
	}
	go func() { _ = m.server.Serve(m.asked) }() // until end closes it
	m.Serve(peer.HTTP, m.asked.add)
}

// open implements [part].
func (m *member) open(a *mgmt.API) {
	m.server.RegisterOnShutdown(a.EndStreams)
	m.api.set(a.Forwarded())
}

// NodeName returns the broker's name. In a cluster it follows from the address that other
// nodes use; otherwise it is configured or, as in RabbitMQ, follows from the machine's
// name.
func NodeName(c *config.Config) string {
	switch name := c.Node.Name; {
	case c.Cluster.On():
		return nameOf(c.Cluster.Advertise)
	case name == "":
		return nameOf(hostName())
	case strings.Contains(name, "@"):
		return name
	default:
		return name + "@" + hostName()
	}
}

func nameOf(address string) string { return "curfew@" + address }
