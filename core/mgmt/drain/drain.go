// Package drain empties a broker before it is stopped: publishers wait, new connections are refused, and consumers take the remaining
// messages. The program around the broker calls [Drain.Step], and stops the broker when Step says so.
package drain

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wire"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Options are the parts of the broker that a drain needs.
type Options struct {
	Server *wire.Server
	VHosts func() []*vhost.VHost
	Clock  clock.Clock
	Log    *slog.Logger
}

// Order describes how a broker is to be drained.
type Order struct {
	Timeout   time.Duration // how long the broker waits for consumers
	Stop      bool          // stop the broker afterwards
	Listening bool          // clients may connect during the drain
	By        string        // the user that ordered the drain
}

// The limits of [Order.Timeout], and its default.
const (
	MinTimeout     = time.Second
	MaxTimeout     = 7 * 24 * time.Hour
	DefaultTimeout = 10 * time.Minute
)

// State is the state of a drain.
type State string

// The states. A broker that is drained but not stopped stays in its state until [Drain.End].
const (
	Serving  State = "serving"  // no drain
	Draining State = "draining" // consumers take the remaining messages
	Drained  State = "drained"  // consumers are done, or the time is over
	Stopping State = "stopping" // the same, and the broker stops
)

// Interval is the time between two calls of [Drain.Step].
const Interval = 500 * time.Millisecond

// Drain is the drain of a broker. Any goroutine may use it.
type Drain struct {
	options Options
	begun   chan struct{} // capacity 1: has a value when a drain has begun

	mu        sync.Mutex // guards the rest
	state     State
	order     Order
	since     hook.Instant
	ended     hook.Instant // end of the drain; 0 = not yet
	timedOut  bool
	empty     bool     // no message was left at the last step
	counts    Counts   // of the last step
	samples   []sample // the latest samples, oldest first
	told      chan struct{}
	overtaken bool // see Overtaken
}

// sample is the number of messages left at a moment.
type sample struct {
	at   hook.Instant
	left int
}

// window is the age of the oldest sample from which the rate is computed.
const window = 5 * time.Second

// New returns the drain of a broker that serves.
func New(o Options) *Drain {
	return &Drain{options: o, begun: make(chan struct{}, 1), state: Serving, told: make(chan struct{})}
}

// Begun receives a value when a drain has begun. From then on Step must be called.
func (d *Drain) Begun() <-chan struct{} { return d.begun }

// Told is closed when a client has read that the broker stops.
func (d *Drain) Told() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.told
}

// Active reports whether the broker is being drained, or was drained.
func (d *Drain) Active() bool { return d.options.Server.Suspended() }

// Begin begins a drain, or gives a drain under way another order.
func (d *Drain) Begin(o Order) error {
	if o.Timeout < MinTimeout || o.Timeout > MaxTimeout {
		return fmt.Errorf("timeout %v: accepted are %v to %v", o.Timeout, MinTimeout, MaxTimeout)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state == Stopping {
		return errStopping
	}
	if err := d.options.Server.Suspend(o.Listening); err != nil {
		return err
	}
	d.state, d.order, d.since, d.ended, d.timedOut, d.empty, d.samples = Draining, o, d.options.Clock(), 0, false, false, nil
	d.look()
	d.options.Log.Info("draining: publishers wait", "timeout", o.Timeout, "stop", o.Stop, "listening", o.Listening, "left", d.counts.Left, "user", o.By)
	select {
	case d.begun <- struct{}{}:
	default:
	}
	return nil
}

var errStopping = errors.New("the broker was drained and is stopping")

// End lets publishers continue and clients connect again. It does nothing without a drain.
func (d *Drain) End(by string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch d.state {
	case Serving:
		return nil
	case Stopping:
		return errStopping
	}
	if err := d.options.Server.Resume(); err != nil {
		return err
	}
	d.options.Log.Info("the drain is ended: publishers go on", "user", by)
	d.state, d.counts, d.samples = Serving, Counts{}, nil
	return nil
}

// Step checks whether the drain is over. If goesOn is false, Step need not be called again before Begun has a value. If stop is true, the
// broker must be stopped.
func (d *Drain) Step() (goesOn, stop bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state != Draining || d.overtaken {
		return false, d.state == Stopping
	}
	d.look()
	// While queues are counted one after another, a message that moves between two of them
	// may be counted in neither. So nothing must be left twice.
	was := d.empty
	d.empty = d.counts.Left == 0
	d.timedOut = d.options.Clock().Sub(d.since) >= d.order.Timeout && !d.empty
	if !d.timedOut && !(was && d.empty) {
		return true, false
	}
	d.ended = d.options.Clock()
	d.state = Drained
	if d.order.Stop {
		d.state = Stopping
	}
	d.report()
	return false, d.order.Stop
}

// Overtaken says that the broker is being stopped for another reason. A drain under way does not end any more. The counts of its last step
// stay, because connections are being closed and consumers take nothing more.
func (d *Drain) Overtaken() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.overtaken = true
}

// recount counts the remaining messages, unless connections are being closed.
func (d *Drain) recount() {
	if !d.overtaken {
		d.counts = count(d.options.VHosts())
	}
}

// look counts the remaining messages, and adds a sample.
func (d *Drain) look() {
	now := d.options.Clock()
	d.recount()
	d.samples = append(d.samples, sample{now, d.counts.Left})
	for len(d.samples) > 2 && now.Sub(d.samples[1].at) >= window {
		d.samples = d.samples[1:]
	}
}

// report logs the end of the drain, and how many messages stay or will be lost.
func (d *Drain) report() {
	log, text := d.options.Log.Info, "drained"
	if d.timedOut {
		log, text = d.options.Log.Warn, "drained as far as consumers got in time"
	}
	kept, doomed := 0, 0
	for i := range d.counts.places {
		kept += d.counts.places[i].kept()
		doomed += d.counts.places[i].doomed
	}
	log(text, "took", d.ended.Sub(d.since).Round(time.Millisecond), "left", d.counts.Left, "kept", kept, "lost_when_stopped", doomed, "stop", d.order.Stop)
}

// Describe returns the state of the drain for the API.
func (d *Drain) Describe() jsonobj.Object {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state == Serving {
		return jsonobj.Object{{"state", string(Serving)}}
	}
	if d.state == Drained {
		d.recount() // consumers may have taken more
	}
	if d.state == Stopping {
		d.tell()
	}
	end := d.ended
	if end == 0 {
		end = d.options.Clock()
	}
	var ended any
	if d.ended != 0 {
		ended = jsonobj.Instant(d.ended)
	}
	rate, eta := d.speed()
	return jsonobj.Object{
		{"state", string(d.state)},
		{"timed_out", d.timedOut},
		{"started_at", jsonobj.Instant(d.since)},
		{"ended_at", ended},
		{"took_ms", end.Sub(d.since).Milliseconds()},
		{"timeout_ms", d.order.Timeout.Milliseconds()},
		{"stop", d.order.Stop},
		{"listening", d.options.Server.Listening()},
		{"user", d.order.By},
		{"rate", rate},
		{"eta_ms", eta},
		{"left", d.counts.list((*place).left)},
		{"kept", d.counts.list((*place).kept)},
		{"lost_when_stopped", d.counts.list(func(p *place) int { return p.doomed })},
	}
}

// tell notes that a client knows that the broker stops. The caller holds mu.
func (d *Drain) tell() {
	select {
	case <-d.told:
	default:
		close(d.told)
	}
}

// speed returns how many messages per second have left lately, and how long the rest takes at that rate; nil = no messages leave.
func (d *Drain) speed() (rate float64, eta any) {
	if len(d.samples) < 2 {
		return 0, nil
	}
	first, last := d.samples[0], d.samples[len(d.samples)-1]
	passed := last.at.Sub(first.at)
	if passed <= 0 || last.left >= first.left {
		return 0, nil
	}
	const tenths = 10
	perSecond := float64(first.left-last.left) / passed.Seconds()
	return float64(int(perSecond*tenths)) / tenths, int64(float64(last.left) / perSecond * float64(time.Second/time.Millisecond))
}
