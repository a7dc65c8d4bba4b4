package mgmt

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/death"
	"github.com/curfewmq/curfew/core/mgmt/definitions"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/simulation"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Rehearsal holds the means for a simulation. Close frees it.
type Rehearsal interface {
	Stage() *simulation.Stage
	// Candidate describes the candidate module, as [Modules] does; nil if there was none.
	Candidate() json.RawMessage
	// Strategy is the candidate's name as a strategy; "" if it is none.
	Strategy() string
	Close()
}

// simulated is a request for a simulation.
type simulated struct {
	play      simulation.Play
	vhost     *vhost.VHost
	strategy  string   // the strategy of the simulation; "" = the queue's own
	more      []string // the message's keys in CC and BCC: a dead letter keeps them if it keeps its key
	candidate *Module
}

const (
	// maxSimulations is how many simulations run at a time.
	maxSimulations = 2
	// simulationTime is how long a simulation may take, besides one call of a module.
	simulationTime = 5 * time.Second
	maxSteps       = 100
	defaultFor     = 365 * 24 * time.Hour
)

var errSimulating = &failure{http.StatusServiceUnavailable, "too_many_simulations", "Too many simulations at a time"}

// simulationHandlers play the lives of messages.
type simulationHandlers struct {
	lab     Lab
	clock   clock.Clock
	running chan struct{} // has an element for each simulation that runs
}

// simulate plays the life of a message.
func (a *simulationHandlers) simulate(c *request) error {
	s, err := a.readSimulation(c)
	if err != nil {
		return err
	}
	select {
	case a.running <- struct{}{}:
		defer func() { <-a.running }()
	default:
		c.w.Header().Set("Retry-After", "1")
		return errSimulating
	}
	c.takeTime(moduleTimeout)
	r, err := a.lab.Rehearse(s.candidate)
	if err != nil {
		return failureOfModule(err)
	}
	defer r.Close()
	if err := s.choose(r); err != nil {
		return err
	}
	stage := r.Stage()
	s.play.Message.Hold = holdHeaders(stage.Chain.HoldHeaders(), s.play.Message.Props)
	began := a.clock()
	s.play.Expired = func() bool { return a.clock().Sub(began) > simulationTime || c.r.Context().Err() != nil }
	played := simulation.Run(stage, &s.play)
	return c.reply(s.describe(&played, r))
}

// choose puts the chosen strategy in force.
func (s *simulated) choose(r Rehearsal) error {
	name := s.strategy
	if name == "" {
		name = r.Strategy()
	}
	if name == "" {
		return nil
	}
	if all := r.Stage().Chain; !all.Offers(name) {
		return badRequest("strategy: unknown expiry strategy '%.64s', expected one of %s", name, joined(all.Strategies()))
	}
	s.play.Queue = simulation.WithStrategy(s.play.Queue, name)
	return nil
}

func (s *simulated) describe(played *simulation.Result, r Rehearsal) object {
	timeline := []object{}
	for i := range played.Events {
		timeline = append(timeline, s.event(&played.Events[i]))
	}
	q := s.play.Queue
	o := object{
		{"at", jsonobj.Instant(s.play.At)},
		{"queue", object{
			{"vhost", q.VHost},
			{"name", s.play.Name},
			{"type", q.Kind},
			{"expiry_strategy", q.Strategy},
			{"arguments", jsonobj.OfArgs(q.Args)},
			{"policy", policyName(q.Policies.User)},
			{"operator_policy", policyName(q.Policies.Operator)},
		}},
		{"timeline", timeline},
		{"end", s.end(played)},
		{"complete", played.Complete},
		{"module", nil},
	}
	if m := r.Candidate(); m != nil {
		set(o, "module", m)
	}
	return o
}

func (s *simulated) event(e *simulation.Event) object {
	o := object{
		{"after_ms", e.At.Sub(s.play.At).Milliseconds()}, {"at", jsonobj.Instant(e.At)}, {"hook", jsonobj.OrNull(e.Hook)}, {"text", e.Text},
	}
	if e.Hook == "" {
		return o
	}
	o.Add("verdict", describeVerdict(&e.Verdict))
	o.Add("by", e.By)
	if e.Verdict.Action == hook.Route {
		o.Add("to", s.leadsTo(&e.Verdict))
	}
	if len(e.Notes) > 0 {
		o.Add("notes", e.Notes)
	}
	if len(e.Opinions) > 0 {
		x := &e.Opinions[0] // a strategy has one shadow
		o.Add("shadow", object{
			{"policy", x.Policy},
			{"digest", x.Digest},
			{"differs", x.Differs},
			{"text", simulation.Words(&x.Verdict, s.play.At)},
			{"verdict", describeVerdict(&x.Verdict)},
			{"in_force", describeVerdict(&x.InForce)},
		})
	}
	return o
}

// leadsTo returns the queues that a dead letter would reach through the present bindings.
func (s *simulated) leadsTo(v *hook.Verdict) object {
	m := &s.play.Message
	key, more := m.Key, s.more
	if v.Target.HasKey {
		key, more = v.Target.Key, nil
	}
	queues, outcome := s.vhost.LeadsTo(v.Target.Exchange, &parts.Message{Key: key, More: more, Props: m.Props, Body: m.Body})
	problem := any(nil)
	switch outcome {
	case telemetry.NoExchange:
		problem = "no_exchange"
	case telemetry.DeadLettered:
	default:
		problem = "unroutable"
	}
	return object{{"exchange", v.Target.Exchange}, {"routing_key", key}, {"queues", queues}, {"problem", problem}}
}

// end describes the end of the message's life.
func (s *simulated) end(played *simulation.Result) object {
	o := object{{"state", string(played.End)}, {"reason", nil}, {"deadline", nil}, {"hold", nil}}
	switch played.End {
	case simulation.Expired, simulation.Dropped, simulation.DeadLetter:
		set(o, "reason", played.Verdict.Reason.String())
	case simulation.Closed:
		set(o, "reason", played.Error)
	case simulation.Ready, simulation.Held, simulation.Unacked:
		set(o, "deadline", jsonobj.Instant(played.Deadline))
		set(o, "hold", jsonobj.Instant(played.Hold))
	}
	if played.End == simulation.DeadLetter {
		o.Add("to", s.leadsTo(&played.Verdict))
	}
	return o
}

// readSimulation reads a simulation, and checks the user's permissions for it.
func (a *simulationHandlers) readSimulation(c *request) (*simulated, error) {
	r := c.jsonBody(maxModuleBody)
	r.Only("queue", "settings", "strategy", "module", "message", "at", "for_ms", "steps")
	s := &simulated{strategy: r.Text("strategy"), candidate: readCandidate(r)}
	if err := r.Err(); err != nil {
		return nil, err
	}
	if s.candidate != nil && s.candidate.Module != nil && !isAdministrator(c.user) {
		return nil, notAuthorised("Not administrator user: only administrators may try modules that are not loaded")
	}
	if s.candidate != nil && s.candidate.Shadow == "" && s.strategy != "" {
		return nil, badRequest("strategy and module: a module is the strategy, unless its member shadow names the one beside which it runs")
	}
	if err := s.readQueue(c, r); err != nil {
		return nil, err
	}
	if s.candidate != nil && s.candidate.Shadow != "" {
		s.strategy = s.candidate.Shadow
	}
	s.readMessage(r)
	s.play.At = a.clock()
	if r.Has("at") {
		const most = uint64(1<<63-1) / uint64(time.Millisecond) / 2              // about a century from now, so that sums do not overflow
		s.play.At = max(hook.Instant(0).AddMillis(int64(r.Uint("at", most))), 1) // 0 would mean that messages have no deadline
	}
	s.play.For = defaultFor
	if r.Has("for_ms") {
		s.play.For = time.Duration(r.Uint("for_ms", hook.MaxMillis)) * time.Millisecond
	}
	s.readSteps(r)
	return s, r.Err()
}

// readCandidate reads a module that is to be tried: one that is loaded, by its name, or
// bytes, as wasm/policies takes them.
func readCandidate(r *jsonobj.Reader) *Module {
	if !r.Has("module") {
		return nil
	}
	m := r.Object("module")
	m.Only("name", "module", "digest", "config", "grants", "fuel", "on_error", "shadow")
	name := m.Name("name")
	if m.Has("module") {
		if name == "" {
			name = "candidate"
		}
		read := definitions.ReadModule(m, name)
		if len(read.Module) == 0 {
			m.Fail(badRequest("module.module is empty: a WebAssembly module in base64 is expected"))
		}
		return &read
	}
	for _, other := range []string{"digest", "config", "grants", "fuel", "on_error"} {
		if m.Has(other) {
			m.Fail(badRequest("module.%s is for modules that are not loaded: module.module is missing", other))
		}
	}
	if name == "" {
		m.Fail(badRequest("module needs the member module, in base64, or name, of a policy that is loaded"))
	}
	return &Module{Name: name, Shadow: m.Text("shadow")}
}

// readQueue reads the queue, which need not exist.
func (s *simulated) readQueue(c *request, r *jsonobj.Reader) error {
	if r.Has("queue") == r.Has("settings") {
		return badRequest("one of queue, {\"vhost\", \"name\"}, and settings, {\"vhost\", \"name\", \"arguments\"}, is needed")
	}
	of := "queue"
	if r.Has("settings") {
		of = "settings"
	}
	q := r.Object(of)
	if of == "queue" {
		q.Only("vhost", "name")
		q.Need("name")
	} else {
		q.Only("vhost", "name", "arguments")
	}
	name, in := q.Name("name"), "/"
	if q.Has("vhost") {
		in = q.Text("vhost")
	}
	args := q.Table("arguments")
	if err := r.Err(); err != nil {
		return err
	}
	v, ok := c.api.Store.VHost(in)
	if !ok || c.api.users().OpenVHost(c.user.Name, in) != nil { // not every user may know whether it exists
		return notAuthorised("User not authorised to access virtual host")
	}
	s.vhost = v
	if of == "settings" {
		return s.imagine(name, args)
	}
	return s.find(c, name)
}

// imagine simulates a queue that does not exist.
func (s *simulated) imagine(name string, args amqp.Table) (err error) {
	if name == "" {
		name = "simulated"
	}
	s.play.Name = name
	s.play.Queue, err = s.vhost.ProfileOf(name, args)
	return err
}

// find simulates an existing queue as it is.
func (s *simulated) find(c *request, name string) error {
	m := s.vhost.Mailbox(name)
	if m == nil {
		return &failure{http.StatusNotFound, "not_found", s.vhost.NoQueue(name).Error()}
	}
	cfg := m.Config()
	h := holder{m, auth.Resource{Kind: auth.Queue, VHost: cfg.VHost, Name: cfg.Name}, s.vhost}
	if err := c.mayUse(auth.Read, &h); err != nil {
		return err
	}
	s.play.Name, s.play.Queue = cfg.Name, cfg.Profile
	return h.look(func(q *queue.Queue) {
		n := q.Stats()
		s.play.Counts = simulation.Counts{Ready: n.Ready, Unacked: n.Unacked, Held: n.Held, Consumers: n.Consumers, ReadyBytes: n.ReadyBytes}
	})
}

func (s *simulated) readMessage(r *jsonobj.Reader) {
	o := r.Object("message")
	o.Only("exchange", "routing_key", "properties", "payload", "payload_encoding", "payload_bytes")
	m := &s.play.Message
	m.Exchange, m.Key = o.Name("exchange"), o.Name("routing_key")
	if !o.Has("routing_key") {
		m.Key = s.play.Name
	}
	if o.Has("payload") {
		if !o.Has("payload_encoding") {
			o.Set("payload_encoding", "string")
		}
		m.Body = readPayload(o)
	}
	m.Size = len(m.Body)
	if o.Has("payload_bytes") {
		const most = 1 << 40
		m.Size = int(o.Uint("payload_bytes", most))
	}
	if m.Size < len(m.Body) {
		o.Fail(badRequest("payload_bytes is %d: the payload has %d", m.Size, len(m.Body)))
	}
	p := readProperties(o.Object("properties"))
	m.Props, m.Priority, m.Persistent = p.Append(nil), p.Priority, p.DeliveryMode == 2
	if p.Has(amqp.PropExpiration) {
		m.Expiration = []byte(p.Expiration)
	}
	m.Deaths = deathsIn(p.Headers)
	if m.Deaths == 0 { // else the last death says whether they still count
		s.more = selectedKeys(m.Props)
	}
}

// selectedKeys returns the routing keys in the headers CC and BCC.
func selectedKeys(props []byte) []string {
	x, err := amqp.IndexProps(props)
	if err != nil {
		return nil
	}
	cc, bcc, err := death.SenderSelected(x.Headers(props))
	if err != nil { // no queue would get such a message
		return nil
	}
	return slices.Concat(cc, bcc)
}

// deathsIn counts the deaths in the header x-death. It is believed, as if this broker had written it.
func deathsIn(headers amqp.Table) (n int) {
	v, _ := headers.Lookup("x-death")
	entries, _ := v.(amqp.Array)
	for _, e := range entries {
		t, _ := e.(amqp.Table)
		count, _ := t.Lookup("count")
		if c, ok := hook.Int(count); ok && c > 0 {
			n += int(min(c, 1<<31))
		}
	}
	return n
}

// holdHeaders returns the values of the headers from which holds are read; nil if there are none of them.
func holdHeaders(names []string, props []byte) []any {
	p, err := amqp.ParseProperties(props)
	if err != nil {
		return nil
	}
	values, some := make([]any, len(names)), false
	for i, name := range names {
		v, ok := p.Headers.Lookup(name)
		if !ok {
			continue
		}
		if t, is := v.(amqp.Timestamp); is {
			const last = 253402300799 // seconds: the end of the year 9999
			v = time.Unix(int64(min(t, last)), 0).UTC()
		}
		values[i], some = v, true
	}
	if !some {
		return nil
	}
	return values
}

// readSteps reads the actions of consumers.
func (s *simulated) readSteps(r *jsonobj.Reader) {
	list, ok := r.Value("steps").([]any)
	switch {
	case !r.Has("steps"):
		return
	case !ok:
		r.Fail(badRequest("steps is no list: {\"after_ms\", \"do\"} are expected in it"))
		return
	case len(list) > maxSteps:
		r.Fail(badRequest("steps has %d: at most %d are allowed", len(list), maxSteps))
		return
	}
	before := time.Duration(0)
	for i, it := range list {
		members, ok := it.(map[string]any)
		if !ok {
			r.Fail(badRequest("step %d is no object", i+1))
			return
		}
		o := jsonobj.ReaderOf(members)
		o.Only("after_ms", "do")
		o.Need("after_ms", "do")
		step := simulation.Step{After: time.Duration(o.Uint("after_ms", hook.MaxMillis)) * time.Millisecond, Do: simulation.Act(o.Text("do"))}
		switch {
		case o.Err() != nil:
			r.Fail(o.Err())
		case !step.Do.Known():
			r.Fail(badRequest("step %d: do is %.40q: %s are known", i+1, string(step.Do), joined(simulation.Acts())))
		case step.After < before:
			r.Fail(badRequest("step %d comes before the one in front of it: after_ms counts from when the message enters", i+1))
		}
		before = step.After
		s.play.Steps = append(s.play.Steps, step)
	}
}

func joined[S ~string](words []S) string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = string(w)
	}
	return strings.Join(all, ", ")
}

// rehearsed is the scope of simulations: the owner of the vhost that the body names.
var rehearsed = together("the owner of the vhost in the body", nil, func(c *request, e *endpoint) error {
	b, err := c.read(min(maxModuleBody, c.api.BodyMax))
	if err != nil {
		return err
	}
	r := *c.r
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
	c.r = &r
	limits := c.limits(jsonobj.MaxValues)
	if err := limits.Check(b); err != nil {
		return err
	}
	in := simulatedIn(b)
	if !c.api.nodes.knows(in) || !c.mayEnter(in) {
		return e.do(c) // which refuses it
	}
	return forwardToOwner(c, e, in)
})

// simulatedIn returns the vhost of a simulation, or some vhost if the body is refused.
func simulatedIn(body []byte) string {
	type place struct {
		VHost *string `json:"vhost"`
	}
	var s struct {
		Queue, Settings place
	}
	if json.Unmarshal(body, &s) == nil {
		for _, p := range []place{s.Queue, s.Settings} {
			if p.VHost != nil {
				return *p.VHost
			}
		}
	}
	return "/"
}
