package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
)

// Session is one run of a scenario: a connection for declarations and questions, the queues to remove at the end, and the
// broker's process.
type session struct {
	*env
	o      *options
	clock  clock
	admin  *conn  // nil without a broker
	prefix string // of the queues' names
	queues []string

	exchanges []string
	start     usage // the broker before anything was declared
	own       time.Duration
}

func (e *env) begin(ctx context.Context, o *options, broker bool) (*session, error) {
	s := &session{env: e, o: o, clock: newClock(), prefix: fmt.Sprintf("bench-%d-", os.Getpid()), own: ownCPU()}
	if !broker {
		return s, nil
	}
	var err error
	if s.start, err = s.usage(); err != nil {
		return nil, err
	}
	if s.admin, err = e.open(ctx, o.broker); err != nil {
		return nil, err
	}
	s.own = ownCPU()
	return s, nil
}

// End removes the queues and leaves.
func (s *session) end() error {
	if s.admin == nil {
		return nil
	}
	for _, q := range s.queues {
		if err := s.admin.remove(q); err != nil {
			return errors.Join(err, s.admin.nc.Close())
		}
	}
	for _, x := range s.exchanges {
		if err := s.admin.removeExchange(x); err != nil {
			return errors.Join(err, s.admin.nc.Close())
		}
	}
	return s.admin.close()
}

// Usage is zero without --pid.
func (s *session) usage() (usage, error) {
	if s.o.pid == 0 {
		return usage{}, nil
	}
	return process{root: s.proc, pid: int(s.o.pid)}.sample()
}

// Queue declares a queue with the arguments of the scenario and of --queue-args, to be removed at the end.
func (s *session) queue(name string, args ...amqp.Field) (string, error) {
	q := s.prefix + name
	d := amqp.QueueDeclare{Queue: q, Durable: s.o.durable, Arguments: slices.Concat(args, s.o.queueArgs.table)}
	if _, err := s.admin.declare(d); err != nil {
		return "", err
	}
	s.queues = append(s.queues, q)
	return q, nil
}

// Bare declares a queue without the arguments of --queue-args: one that only helps with the measurement.
func (s *session) bare(name string, args ...amqp.Field) (string, error) {
	q := s.prefix + name
	if _, err := s.admin.declare(amqp.QueueDeclare{Queue: q, Durable: s.o.durable, Arguments: args}); err != nil {
		return "", err
	}
	s.queues = append(s.queues, q)
	return q, nil
}

// Mortal declares a queue whose expired messages go to a second one.
func (s *session) mortal() (queue, dead string, err error) {
	if dead, err = s.bare("dead"); err != nil {
		return "", "", err
	}
	queue, err = s.queue("0", append(s.ttl(), deadTo(dead)...)...)
	return queue, dead, err
}

// DeadTo are the arguments of a queue whose dead messages go to another.
func deadTo(queue string) []amqp.Field {
	return []amqp.Field{{Key: "x-dead-letter-exchange", Value: ""}, {Key: "x-dead-letter-routing-key", Value: queue}}
}

// Exchange declares an exchange, to be removed at the end.
func (s *session) exchange(kind string) (string, error) {
	x := s.prefix + kind
	if err := s.admin.exchange(amqp.ExchangeDeclare{Exchange: x, Type: kind, Durable: s.o.durable}); err != nil {
		return "", err
	}
	s.exchanges = append(s.exchanges, x)
	return x, nil
}

// TTL is the argument for --ttl.
func (s *session) ttl() []amqp.Field {
	if s.o.ttl < 0 {
		return nil
	}
	return []amqp.Field{{Key: "x-message-ttl", Value: s.o.ttl}}
}

func (s *session) content(keys []string, frameMax int) content {
	return content{
		keys:       keys,
		size:       int(s.o.size),
		persistent: s.o.persistent,
		batch:      int(s.o.batch),
		expiration: s.o.expiration,
		ttl:        s.o.ttl,
		frameMax:   frameMax,
	}
}

// Settle gives the broker the time to come to rest.
func settle(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
