package bench

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
)

// session is one run of a scenario. It has a connection for declarations and other requests, a list of what to remove at the end, and
// the broker's process.
type session struct {
	*env

	o         *options
	clock     clock
	admin     *conn  // nil without a broker
	prefix    string // of the names of queues
	queues    []string
	exchanges []string
	cleanups  []func() error

	start  usage // of the broker, before the first declaration
	own    time.Duration
	failed error // the first error of sampling the broker's process
}

func (e *env) begin(ctx context.Context, o *options, broker bool) (*session, error) {
	s := &session{env: e, o: o, clock: newClock(), prefix: fmt.Sprintf("bench-%d-", os.Getpid()), own: ownCPU()}
	if !broker {
		return s, nil
	}
	if s.sample(&s.start); s.failed != nil {
		return nil, s.failed
	}
	var err error
	if s.admin, err = e.open(ctx, o.broker); err != nil {
		return nil, err
	}
	s.own = ownCPU()
	return s, nil
}

// cleanUp registers fn to be called at the end of the run.
func (s *session) cleanUp(fn func() error) { s.cleanups = append(s.cleanups, fn) }

// end cleans up, deletes queues and exchanges, and closes the connection.
func (s *session) end() (err error) {
	for _, fn := range slices.Backward(s.cleanups) {
		err = errors.Join(err, fn())
	}
	if s.admin == nil {
		return err
	}
	if e := s.remove(); e != nil {
		return errors.Join(err, e, s.admin.nc.Close())
	}
	return errors.Join(err, s.admin.close())
}

func (s *session) remove() error {
	for _, q := range s.queues {
		if _, err := request[*amqp.QueueDeleteOK](s.admin, &amqp.QueueDelete{Queue: q}); err != nil {
			return fmt.Errorf("queue %s: %w", q, err)
		}
	}
	for _, x := range s.exchanges {
		if _, err := request[*amqp.ExchangeDeleteOK](s.admin, &amqp.ExchangeDelete{Exchange: x}); err != nil {
			return err
		}
	}
	return nil
}

// sample samples the broker's process; without --pid the sample is zero. The first error is kept, and the run fails with it.
func (s *session) sample(into *usage) {
	var err error
	if s.o.pid > 0 {
		*into, err = process{root: s.proc, pid: int(s.o.pid)}.sample()
	}
	if s.failed == nil {
		s.failed = err
	}
}

// sampleAfter waits for d and then samples.
func (s *session) sampleAfter(ctx context.Context, d time.Duration, into *usage) error {
	select {
	case <-time.After(d):
		s.sample(into)
		return s.failed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// queue declares a queue with the arguments of the scenario and of --queue-args. The session deletes it at the end.
func (s *session) queue(name string, args ...amqp.Field) (string, error) {
	return s.bare(name, slices.Concat(args, s.o.queueArgs.table)...)
}

// bare declares a queue without the arguments of --queue-args, for a queue that only serves the measurement.
func (s *session) bare(name string, args ...amqp.Field) (string, error) {
	q := s.prefix + name
	if _, err := s.admin.declare(amqp.QueueDeclare{Queue: q, Durable: s.o.durable, Arguments: args}); err != nil {
		return "", err
	}
	s.queues = append(s.queues, q)
	return q, nil
}

// mortal declares a queue and its dead-letter queue.
func (s *session) mortal() (queue, dead string, err error) {
	if dead, err = s.bare("dead"); err != nil {
		return "", "", err
	}
	queue, err = s.queue("0", append(s.ttl(), deadTo(dead)...)...)
	return queue, dead, err
}

// deadTo returns the arguments for dead-lettering to a queue.
func deadTo(queue string) []amqp.Field {
	return []amqp.Field{{Key: "x-dead-letter-exchange", Value: ""}, {Key: "x-dead-letter-routing-key", Value: queue}}
}

// exchange declares an exchange. The session deletes it at the end.
func (s *session) exchange(kind string, args ...amqp.Field) (string, error) {
	x := s.prefix + kind
	m := &amqp.ExchangeDeclare{Exchange: x, Type: kind, Durable: s.o.durable, Arguments: args}
	if _, err := request[*amqp.ExchangeDeclareOK](s.admin, m); err != nil {
		return "", err
	}
	s.exchanges = append(s.exchanges, x)
	return x, nil
}

// ttl returns the queue argument for --ttl.
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

// secure sets up TLS if the flags or the URI ask for it.
func (o *options) secure(given map[string]bool) error {
	if o.tls && !given["uri"] {
		if err := o.broker.Set("amqps://guest:guest@127.0.0.1/"); err != nil {
			return err
		}
	}
	if !o.tls && !o.broker.secure {
		for _, name := range []string{"tls-ca", "tls-insecure", "tls-cert", "tls-key"} {
			if given[name] {
				return fmt.Errorf("--%s needs --tls, or a --uri with amqps", name)
			}
		}
		return nil
	}
	if o.tlsAny && o.tlsCA != "" {
		return errors.New("--tls-ca, --tls-insecure: only one of them: with the second any certificate will do")
	}
	roots, err := o.roots()
	if err != nil {
		return err
	}
	own, err := o.certificates()
	if err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(o.broker.addr)
	o.broker.tls = &tls.Config{
		ServerName:                  host,
		RootCAs:                     roots,
		Certificates:                own,
		InsecureSkipVerify:          o.tlsAny,
		DynamicRecordSizingDisabled: true, // each message in one record, from the first
	}
	return err
}

// certificates returns the client's certificate; nil = none.
func (o *options) certificates() ([]tls.Certificate, error) {
	if o.tlsCert == "" {
		if o.tlsKey != "" {
			return nil, errors.New("--tls-key needs --tls-cert")
		}
		return nil, nil
	}
	key := cmp.Or(o.tlsKey, o.tlsCert)
	own, err := tls.LoadX509KeyPair(o.tlsCert, key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %s, --tls-key %s: %w", o.tlsCert, key, err)
	}
	return []tls.Certificate{own}, nil
}

// roots returns the trusted authorities; nil = the system's.
func (o *options) roots() (*x509.CertPool, error) {
	if o.tlsCA == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(o.tlsCA)
	if err != nil {
		return nil, fmt.Errorf("--tls-ca: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--tls-ca %s: it contains no certificate", o.tlsCA)
	}
	return roots, nil
}
