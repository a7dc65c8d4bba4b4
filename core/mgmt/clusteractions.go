package mgmt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/replicas"
	"github.com/curfewmq/curfew/core/wlog"
)

var errNoCluster = &failure{http.StatusNotFound, "not_found", "the broker is not a node of a cluster: it was started without cluster.nodes"}

// conflict is the failure of an action that cannot be done now.
func conflict(layout string, args ...any) error {
	return &failure{http.StatusConflict, "conflict", fmt.Sprintf(layout, args...)}
}

// withBody gives the request another body.
func withBody(c *request, o object) {
	b := o.Append(nil)
	r := *c.r
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
	c.r = &r
}

// shardChange is an order to transfer a shard.
type shardChange struct {
	shard uint32
	to    replicas.Node
}

// readTransfer reads the shard to transfer and its new owner: {"shard" or "vhost", "to"}.
func (a *clusterHandlers) readTransfer(c *request) (t shardChange, err error) {
	r := c.body()
	r.Only("shard", "vhost", "to")
	r.Need("to")
	vhost, to := r.Name("vhost"), r.Text("to")
	number := uint64(0)
	if r.Has("shard") {
		number = r.Uint("shard", maxShard)
	}
	if err := r.Err(); err != nil {
		return t, err
	}
	if r.Has("shard") == r.Has("vhost") {
		return t, badRequest("one of shard, a number from 0 to %d, and vhost, a name, is needed", maxShard)
	}
	t.shard = uint32(number)
	if r.Has("vhost") {
		shard, known := a.nodes.placements.ShardOf(vhost)
		if !known {
			return t, &failure{http.StatusNotFound, "not_found", fmt.Sprintf("there is no virtual host '%s'", vhost)}
		}
		t.shard = shard
	}
	if t.to, err = a.nodes.memberAt(to); err != nil {
		return t, err
	}
	return t, nil
}

// maxShard is the highest number of a shard.
const maxShard = 255

// memberAt returns the node of a name or an address.
func (ns *nodes) memberAt(to string) (replicas.Node, error) {
	var all []string
	for _, n := range ns.members() {
		if n.Name == to || n.Address == to {
			return n, nil
		}
		all = append(all, n.Address)
	}
	return replicas.Node{}, badRequest("'%.200s' is no node of the cluster: they are at %s", to, strings.Join(all, ", "))
}

// ownerOf returns the node that owns a shard, as far as this node knows.
func (a *clusterHandlers) ownerOf(c *request, shard uint32) (n replicas.Node, err error) {
	v := a.nodes.view()
	for i := range v.Shards {
		if v.Shards[i].Shard != shard {
			continue
		}
		if n, ok := a.nodes.memberOf(v.Shards[i].Owner); ok {
			return n, nil
		}
		return n, c.errUnowned(fmt.Sprintf("shard %d", shard))
	}
	return n, &failure{http.StatusNotFound, "not_found", fmt.Sprintf("there is no shard %d: the cluster has %d, from 0 on", shard, len(v.Shards))}
}

// atShardOwner is the scope of a transfer: the owner of the shard in the body.
var atShardOwner = scope{name: "the shard's owner", answer: func(c *request, e *endpoint) error {
	if len(c.api.nodes.others()) == 0 {
		return errNoCluster
	}
	t, err := c.api.cluster.readTransfer(c)
	if err != nil {
		return err
	}
	owner, err := c.api.cluster.ownerOf(c, t.shard)
	if err != nil {
		return err
	}
	if owner.ID == t.to.ID {
		return c.done(nil)
	}
	withBody(c, object{{"shard", int(t.shard)}, {"to", t.to.Name}})
	if c.api.nodes.isSelf(&owner) {
		return e.do(c)
	}
	return c.api.nodes.forward(c, owner, e)
}}

// transferTime is how long a transfer may take.
const transferTime = 20 * time.Second

// transfer hands a shard that this node owns to another one.
func (a *clusterHandlers) transfer(c *request) error {
	t, err := a.readTransfer(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), transferTime)
	defer cancel()
	if err := a.nodes.replicas.Transfer(ctx, t.shard, t.to.ID); err != nil {
		a.log.Warn("a shard is not transferred", "shard", t.shard, "to", t.to.Name, "user", c.user.Name, "error", err)
		return unchanged(t.to.Address, err)
	}
	a.log.Info("a shard is transferred", "shard", t.shard, "to", t.to.Name, "user", c.user.Name)
	return c.done(nil)
}

// unchanged returns the failure of an action on the node at an address.
func unchanged(address string, err error) error {
	if _, told := errors.AsType[*failure](err); told || isOwnership(err) {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return conflict("%s: it is not done yet: %v", address, err)
	}
	return conflict("%s: %v", address, err)
}

// Replacing a node has two steps: every node admits the new one, then the owner of each shard takes it in.

// replacement says which node is to get a seat.
type replacement struct {
	address string
	number  wlog.NodeID
	shard   int // -1 = all nodes are to admit it
	step    bool
}

// readReplacement reads {"address", "number"}, and the step if another node sends the
// request. Without a number, it is the number of the node that waits at the address.
func (a *clusterHandlers) readReplacement(c *request) (p replacement, err error) {
	r := c.body()
	known := []string{"address", "number"}
	if c.forwarded {
		known = append(known, "shard")
	}
	r.Only(known...)
	r.Need("address")
	p.address, p.shard = r.Name("address"), -1
	if c.forwarded && r.Has("shard") {
		p.shard, p.step = int(r.Uint("shard", maxShard)), true
	}
	if err := r.Err(); err != nil {
		return p, err
	}
	if err := a.checkSeat(&p); err != nil { // before the search for the node that waits there
		return p, err
	}
	if !c.forwarded { // without a majority nothing can be done, and no answer about nodes is given
		if err := a.checkMajority(c); err != nil {
			return p, err
		}
	}
	if r.Has("number") {
		if p.number, err = numberOfNode(r.Value("number")); err == nil && !c.forwarded {
			err = a.checkWaits(&p)
		}
	} else {
		p.number, err = a.applicantAt(p.address)
	}
	if err == nil && !c.forwarded {
		err = a.checkVacant(&p)
	}
	return p, err
}

// checkVacant refuses to replace a running node. It would be shut out for good, in favour
// of a node that was given its address by mistake.
func (a *clusterHandlers) checkVacant(p *replacement) error {
	v := a.nodes.view()
	for _, n := range v.Nodes {
		if n.Address == p.address && n.Up && n.ID != p.number {
			return conflict("the node at '%.200s' runs, with the number %d, and node %d waits with the same cluster.advertise: give that its own; "+
				"or, if it is to replace the other, stop that first", p.address, n.ID, p.number)
		}
	}
	return nil
}

// numberOfNode reads the number of a node, a text or a number.
func numberOfNode(v any) (wlog.NodeID, error) {
	text, _ := v.(string)
	if n, ok := v.(json.Number); ok {
		text = string(n)
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 {
		return 0, badRequest("number is %.40s: that of the new node is expected, which it prints when it is refused", jsonobj.Marshal(v))
	}
	return wlog.NodeID(n), nil
}

// applicantAt returns the number of the node that waits at an address. If none waits, it
// returns the number of the node that runs there: an earlier request may have replaced the
// former one already, and nothing is left to do.
func (a *clusterHandlers) applicantAt(address string) (wlog.NodeID, error) {
	v := a.nodes.view()
	for _, n := range v.Applicants {
		if n.Address == address {
			return n.ID, nil
		}
	}
	for _, n := range v.Nodes {
		if n.Address == address && (n.Up || awaited(&v, n.ID)) {
			return n.ID, nil
		}
	}
	return 0, conflict("no node waits at '%.200s'%s", address, adviceAbout(&v, address))
}

// adviceAbout says what to do about a node when no other waits in its place. The advice
// must not make an operator empty a good disk.
func adviceAbout(v *replicas.View, address string) string {
	if slices.ContainsFunc(v.Nodes, func(n replicas.Node) bool { return n.Address == address && n.Up }) {
		return ", and the node there runs: there is nothing to replace"
	}
	return ": start the node there with its data folder; or, only if that is lost, with an empty one and the addresses of the cluster, and repeat this"
}

// checkWaits refuses a number that belongs neither to a node that waits at the address nor
// to the node with the seat, which may have got it by an earlier request. With such a
// number, the node there would be shut out in favour of one that does not exist.
func (a *clusterHandlers) checkWaits(p *replacement) error {
	v := a.nodes.view()
	var waiting []string
	for _, n := range v.Applicants {
		if n.Address != p.address {
			continue
		}
		if n.ID == p.number {
			return nil
		}
		waiting = append(waiting, strconv.FormatUint(uint64(n.ID), 10))
	}
	if slices.ContainsFunc(v.Nodes, func(n replicas.Node) bool { return n.Address == p.address && n.ID == p.number }) {
		return nil
	}
	if len(waiting) == 0 {
		return conflict("no node waits at '%.200s', neither number %d nor another%s", p.address, p.number, adviceAbout(&v, p.address))
	}
	return conflict("number is %d, which does not wait at '%.200s': the nodes that wait there have %s", p.number, p.address, strings.Join(waiting, ", "))
}

// awaited reports whether some shard has not yet taken a node in.
func awaited(v *replicas.View, id wlog.NodeID) bool {
	return slices.ContainsFunc(v.Shards, func(s replicas.Shard) bool { return len(s.Voters) > 0 && !slices.Contains(s.Voters, id) })
}

// checkSeat refuses addresses that no node has, and this node's own.
func (a *clusterHandlers) checkSeat(p *replacement) error {
	var all []string
	for _, n := range a.nodes.members() {
		all = append(all, n.Address)
		if n.Address != p.address {
			continue
		}
		if a.nodes.isSelf(&n) {
			return badRequest("address is '%.200s', that of the node which is asked: ask another one", p.address)
		}
		return nil
	}
	return badRequest("address is '%.200s', at which no node of the cluster is: they are at %s", p.address, strings.Join(all, ", "))
}

// replaceTime is how long a replacement may take: the new node gets the whole log.
const replaceTime = 30 * time.Minute

// takeTime is how long a shard's owner tries. It is less than replaceTime, so that the
// owner can still say why it gave up.
const takeTime = replaceTime - time.Minute

// atAllShards is the scope of a replacement: all nodes, and then the owner of each shard.
var atAllShards = scope{name: "all nodes, then the owner of each shard", answer: func(c *request, e *endpoint) error {
	if len(c.api.nodes.others()) == 0 {
		return errNoCluster
	}
	p, err := c.api.cluster.readReplacement(c)
	if err != nil {
		return err
	}
	c.takeTime(replaceTime + writeTimeout)
	if err := c.api.cluster.admitAtAll(c, e, &p); err != nil {
		return begun(err)
	}
	done := []any{}
	v := c.api.nodes.view()
	for i := range v.Shards {
		shard := v.Shards[i].Shard
		if err := c.api.cluster.replaceIn(c, e, &p, shard); err != nil {
			return begun(err)
		}
		done = append(done, int(shard))
	}
	c.api.Log.Info("a node is replaced", "address", p.address, "number", numberText(p.number), "user", c.user.Name)
	return c.reply(object{{"address", p.address}, {"number", numberText(p.number)}, {"shards", done}})
}}

// checkMajority refuses a replacement while there is no majority. Otherwise it would shut
// out a node that may come back with its data, and then would make the majority.
func (a *clusterHandlers) checkMajority(c *request) error {
	ctx, cancel := context.WithTimeout(c.r.Context(), freshTime)
	defer cancel()
	if err := a.nodes.placements.Fresh(ctx); err != nil {
		a.log.Warn("no node is replaced: no majority of the others answers", "user", c.user.Name, "error", err)
		return c.errUnowned(registryText)
	}
	for _, s := range a.nodes.view().Shards {
		if _, err := a.ownerOf(c, s.Shard); err != nil {
			return err
		}
	}
	return nil
}

// admitAtAll makes all live nodes admit the new one.
func (a *clusterHandlers) admitAtAll(c *request, e *endpoint, p *replacement) error {
	if err := a.nodes.replicas.Admit(c.r.Context(), p.address, p.number); err != nil {
		return unchanged(p.address, err)
	}
	for _, n := range a.nodes.members() {
		if a.nodes.isSelf(&n) || n.Address == p.address {
			continue
		}
		withBody(c, object{{"address", p.address}, {"number", numberText(p.number)}})
		if err := a.stepAt(c, n, e); err != nil {
			return err
		}
	}
	return nil
}

// replaceIn makes the owner of a shard take the new node in.
func (a *clusterHandlers) replaceIn(c *request, e *endpoint, p *replacement, shard uint32) error {
	owner, err := a.ownerOf(c, shard)
	if err != nil {
		return err
	}
	if a.nodes.isSelf(&owner) {
		return a.replaceHere(c, p, shard)
	}
	withBody(c, object{{"address", p.address}, {"number", numberText(p.number)}, {"shard", int(shard)}})
	return a.stepAt(c, owner, e)
}

// stepAt makes another node do a step, and returns the error of that node.
func (a *clusterHandlers) stepAt(c *request, n replicas.Node, e *endpoint) error {
	answer, err := a.nodes.send(c, n, e)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // the answer was read
	if answer.StatusCode < http.StatusMultipleChoices {
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(answer.Body, maxSmallBody))
	if err != nil {
		return a.nodes.unforwarded(c, n, replaceTime, err)
	}
	o, err := jsonobj.ParseObject(b)
	if err != nil {
		return a.nodes.unforwarded(c, n, replaceTime, errStatus(answer.StatusCode))
	}
	code, _ := valueOf(o, "error").(string)
	return &failure{answer.StatusCode, code, fmt.Sprintf("%s: %v", n.Name, valueOf(o, "reason"))}
}

// replace does this node's step of a replacement.
func (a *clusterHandlers) replace(c *request) error {
	p, err := a.readReplacement(c)
	if err != nil {
		return err
	}
	if p.step {
		err = a.replaceHere(c, &p, uint32(p.shard))
	} else {
		err = a.nodes.replicas.Admit(c.r.Context(), p.address, p.number)
	}
	if err != nil {
		return unchanged(p.address, err)
	}
	return c.done(nil)
}

// replaceHere takes the new node into a shard that this node owns.
func (a *clusterHandlers) replaceHere(c *request, p *replacement, shard uint32) error {
	c.takeTime(replaceTime + writeTimeout)
	ctx, cancel := context.WithTimeout(c.r.Context(), takeTime)
	defer cancel()
	err := a.nodes.replicas.Replace(ctx, shard, p.number)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		err = conflict("shard %d is not done yet: %s; replacing may be repeated, and goes on where it was", shard, a.awaitedIn(shard, p.number))
	}
	if err != nil {
		a.log.Warn("a node is not taken into a shard yet", "shard", shard, "address", p.address, "number", numberText(p.number), "user", c.user.Name, "error", err)
		return unchanged(p.address, err)
	}
	a.log.Info("a node is taken into a shard", "shard", shard, "address", p.address, "number", numberText(p.number), "user", c.user.Name)
	return nil
}

// awaitedIn says why the owner of a shard has not yet taken a node in.
func (a *clusterHandlers) awaitedIn(shard uint32, id wlog.NodeID) string {
	var why []string
	v := a.nodes.view()
	for i := range v.Shards {
		if v.Shards[i].Shard != shard {
			continue
		}
		for _, p := range v.Shards[i].Peers {
			n, member := a.nodes.memberOf(p.Node)
			switch {
			case !member: // the former node
			case !p.Active || !n.Up:
				why = append(why, n.Name+" does not answer")
			case p.Node == id && p.Silent:
				why = append(why, "what "+n.Name+" lacks is not known yet")
			case p.Node == id && p.Lag > 0:
				why = append(why, fmt.Sprintf("%s lacks %d entries", n.Name, p.Lag))
			}
		}
	}
	if len(why) == 0 {
		return "the nodes have not agreed on it"
	}
	return strings.Join(why, ", ")
}
