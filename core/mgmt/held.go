package mgmt

import (
	"context"
	"errors"
	"math"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// heldHandlers show and change held messages.
type heldHandlers struct{ clock clock.Clock }

// routes lists the paths of held messages, below the path of the queue or exchange that holds them. find returns the holder for a path.
func (a *heldHandlers) routes(below string, find func(*request) (holder, error)) []route {
	on := func(p auth.Permission, do func(*request, *holder) error) handler {
		return func(c *request) error {
			h, err := find(c)
			if err != nil {
				return err
			}
			if err := c.mayUse(p, &h); err != nil {
				return err
			}
			return do(c, &h)
		}
	}
	return []route{
		{below, []endpoint{get(atOwner, inVHost, on(auth.Read, a.listHeld)), remove(atOwner, inVHost, on(auth.Write, a.cancelMany))}},
		{below + "/{id}", []endpoint{
			get(atOwner, inVHost, on(auth.Read, oneHeld)), patch(atOwner, inVHost, on(auth.Write, a.moveHeld)), remove(atOwner, inVHost, on(auth.Write, cancelHeld)),
		}},
		{below + "/{id}/release", []endpoint{post(atOwner, inVHost, on(auth.Write, releaseHeld))}},
	}
}

// holder is the queue or exchange that holds messages.
type holder struct {
	mailbox *queue.Mailbox
	what    auth.Resource
	vhost   *vhost.VHost
}

// isExchange reports whether an exchange holds the messages.
func (h *holder) isExchange() bool { return h.what.Kind == auth.Exchange }

// scheduledIn returns the exchange that the path names.
func scheduledIn(c *request) (holder, error) {
	name := c.exchangeName()
	m, err := c.vhost.Schedule(name)
	if err != nil {
		return holder{}, err
	}
	return holder{m, auth.Resource{Kind: auth.Exchange, VHost: c.vhost.Name(), Name: name}, c.vhost}, nil
}

// heldIn returns the queue that the path names.
func heldIn(c *request) (holder, error) {
	m, err := c.mailbox()
	if err != nil {
		return holder{}, err
	}
	cfg := m.Config()
	if cfg.Exclusive {
		return holder{}, badRequest("queue '%s' in vhost '%s' is exclusive: only its connection sees its messages", cfg.Name, cfg.VHost)
	}
	return holder{m, auth.Resource{Kind: auth.Queue, VHost: cfg.VHost, Name: cfg.Name}, c.vhost}, nil
}

// mayUse checks a permission for a holder. As over AMQP, the tag administrator is not enough.
func (c *request) mayUse(p auth.Permission, h *holder) error {
	if c.api.users().OpenVHost(c.user.Name, h.what.VHost) != nil {
		return notAuthorised("User not authorised to access virtual host")
	}
	return c.api.users().Check(c.user.Name, p, h.what)
}

// look runs fn on the queue's turn. fn may run twice, if bodies cannot be read back from the disk. The error of a queue that is
// stopped is an answer.
func (h *holder) look(fn func(q *queue.Queue)) error {
	return h.turn(func(q *queue.Queue, _ hook.Instant) { fn(q) })
}

// turn is look, for changes that need not be durable when it returns.
func (h *holder) turn(fn func(q *queue.Queue, now hook.Instant)) error {
	var stopped *queue.StoppedError
	err := h.mailbox.Do(func(q *queue.Queue, now hook.Instant) {
		if stopped = q.Stopped(); stopped == nil {
			fn(q, now)
		}
	})
	if err == nil && stopped != nil {
		err = stopped
	}
	return heldFailure(err)
}

// change runs fn on the queue's turn, and returns when its changes are durable.
func (h *holder) change(ctx context.Context, fn func(q *queue.Queue, now hook.Instant)) error {
	return heldFailure(h.mailbox.Change(ctx, fn))
}

// heldFailure returns an error of a queue as an answer.
func heldFailure(err error) error {
	if stopped, ok := errors.AsType[*queue.StoppedError](err); ok {
		return &failure{http.StatusServiceUnavailable, "queue_stopped", stopped.Error()}
	}
	switch {
	case errors.Is(err, queue.ErrGone):
		return errNotFound
	case errors.Is(err, context.DeadlineExceeded):
		return &failure{http.StatusServiceUnavailable, "not_durable", "the log did not take the change in time: it may be lost if the broker ends now"}
	}
	return err
}

// heldRef returns the message that the path names. A path that can name none is an error.
func heldRef(c *request) (queue.Ref, error) {
	n, err := strconv.ParseUint(c.vars["id"], 10, 64)
	if err != nil {
		return 0, badRequest("id %.40q: a number from 0 to %d is expected", c.vars["id"], uint64(math.MaxUint64))
	}
	return queue.Ref(n), nil
}

// changeOne changes the message that the path names. fn reports whether the message was held. It answers 204, or 404.
func changeOne(c *request, h *holder, fn func(q *queue.Queue, now hook.Instant, r queue.Ref) bool) error {
	ref, err := heldRef(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), operationTimeout)
	defer cancel()
	held := false
	err = h.change(ctx, func(q *queue.Queue, now hook.Instant) { held = fn(q, now, ref) })
	return c.removed(held, err)
}

// moveHeld changes when a message is released. A time that has passed releases it.
func (a *heldHandlers) moveHeld(c *request, h *holder) error {
	r := c.body()
	r.Only("deliver_at")
	r.Need("deliver_at")
	if r.Err() == nil && !r.Has("deliver_at") {
		r.Fail(badRequest("deliver_at is null: milliseconds since 1970 are expected"))
	}
	at := r.Uint("deliver_at", uint64(a.clock().AddMillis(hook.MaxMillis))/uint64(time.Millisecond))
	if err := r.Err(); err != nil {
		return err
	}
	until := hook.Instant(0).AddMillis(int64(at))
	return changeOne(c, h, func(q *queue.Queue, now hook.Instant, r queue.Ref) bool { return q.MoveHeld(now, r, until) })
}

func releaseHeld(c *request, h *holder) error {
	return changeOne(c, h, func(q *queue.Queue, now hook.Instant, r queue.Ref) bool { return q.MoveHeld(now, r, now) })
}

func cancelHeld(c *request, h *holder) error {
	return changeOne(c, h, func(q *queue.Queue, now hook.Instant, r queue.Ref) bool { return q.CancelHeld(now, r) == 1 })
}

// cancelTime is how long a request cancels messages, before it waits for the log and answers how many there were so far.
const cancelTime = 15 * time.Second

// cancelMany cancels the messages that are held at the time of the request, due before an instant or with a routing key. It works in parts,
// so that the queue can do other things between them. It waits for the log once, at the end: if each part waited for its own disk write, a
// million messages would take longer than clients wait.
func (a *heldHandlers) cancelMany(c *request, h *holder) error {
	selected, err := readSelection(c)
	if err != nil {
		return err
	}
	began := a.clock()
	selected.entered = began.Add(time.Millisecond) // queues round the time when a message entered up
	ctx, cancel := context.WithTimeout(c.r.Context(), operationTimeout)
	defer cancel()
	cancelled, from, done := 0, duePosition{}, false
	for ; !done && a.clock().Sub(began) < cancelTime && ctx.Err() == nil; runtime.Gosched() {
		err := h.turn(func(q *queue.Queue, now hook.Instant) {
			var refs []queue.Ref
			refs, from, done = selected.next(q, from)
			cancelled += q.CancelHeld(now, refs...)
		})
		if err != nil {
			return err
		}
	}
	if err := h.change(ctx, func(*queue.Queue, hook.Instant) {}); err != nil {
		return err
	}
	o := object{{"cancelled", cancelled}}
	if !done {
		o.Add("complete", false)
	}
	return c.reply(o)
}

// selection says which messages are to be cancelled.
type selection struct {
	before  hook.Instant // released before it
	key     string
	anyKey  bool
	entered hook.Instant // and that entered no later
}

// readSelection refuses parameters that it does not know: without them, everything would be cancelled.
func readSelection(c *request) (s selection, err error) {
	q := c.query.raw
	if err := onlyParameters(q, []string{"before", "routing_key"}); err != nil {
		return s, err
	}
	if strings.HasSuffix(c.r.URL.EscapedPath(), "/") { // the id in a script's URL was an empty variable
		return s, badRequest("the path ends in / and names no message; without / all are cancelled")
	}
	s = selection{before: math.MaxInt64, key: q.Get("routing_key"), anyKey: !q.Has("routing_key")}
	if !q.Has("before") {
		return s, nil
	}
	const most = math.MaxInt64 / uint64(time.Millisecond)
	n, err := strconv.ParseUint(q.Get("before"), 10, 64)
	if err != nil || n > most {
		return s, badRequest("before: %.40q is not a number of milliseconds since 1970 from 0 to %d", q.Get("before"), most)
	}
	s.before = hook.Instant(0).AddMillis(int64(n))
	return s, nil
}

// scanPart is the number of held messages that one turn of their queue looks at.
const scanPart = 256

// next returns the selected messages of the next part, and where the one after it begins.
func (s *selection) next(q *queue.Queue, from duePosition) (refs []queue.Ref, after duePosition, done bool) {
	seen := 0
	done = true
	after = from
	q.HeldFrom(from.at, from.ref, func(m *queue.Held) bool {
		if m.Until >= s.before {
			return false
		}
		if seen++; seen > scanPart {
			done = false
			return false
		}
		if (s.anyKey || string(m.Key) == s.key) && m.Enqueued <= s.entered {
			refs = append(refs, m.Ref)
		}
		after = duePosition{m.Until, m.Ref}.next()
		return true
	})
	return refs, after, done
}
