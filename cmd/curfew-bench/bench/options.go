package bench

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"strconv"
	"time"

	flagusage "github.com/curfewmq/curfew/cmd/curfew/usage"
	"github.com/curfewmq/curfew/core/config"
)

const (
	maxMillis = 315_360_000_000 // ten years: the longest TTL that a broker accepts
	maxSize   = 128 << 20       // bytes in a body
	maxCount  = 1_000_000_000
)

// options are the values of all flags. Each scenario registers the flags that it uses, with its own defaults.
type options struct {
	broker     target
	asJSON     bool
	pid        int64
	tls        bool
	tlsCA      string
	tlsCert    string // identifies the user; "" = name and password do
	tlsKey     string
	tlsAny     bool // accept any certificate
	durable    bool
	persistent bool
	queueArgs  arguments

	publishers, consumers int64
	queues                int64
	size                  int64 // bytes
	batch                 int64 // messages in one write
	rate                  int64 // messages per second, all publishers together; 0 = as fast as the broker accepts them
	messages              int64 // all publishers together; 0 = no limit
	duration              time.Duration
	confirm               int64 // outstanding confirms per publisher; 0 = no confirms
	fdatasync             string
	prefetch, ackEvery    int64
	ttl                   int64 // queue TTL in milliseconds; -1 = none
	expiration            span
	mortal                bool // the scenario gives its queue a dead-letter queue
	management            endpoint
	perSecond             int64  // of a redrive; 0 = as fast as the broker can
	by                    string // how messages wait, one of the constants in waiting.go

	rounds       int64         // retries
	matching     int64         // topic: bindings that take a message
	keys         int64         // direct, hash: routing keys
	weight       int64         // hash: the binding key
	exchangeType string        // hash
	connections  int64         // crowd
	idle         time.Duration // crowd
	delay, every time.Duration // storm; every: crowd
	expires      int64         // leases, milliseconds
	window       int64         // leases
	sample       int64         // leases

	urls      targets       // failover: instead of broker
	queueType string        // failover
	fault     string        // failover: a command for sh; "" = none
	faults    int64         // failover
	giveUp    time.Duration // failover: how long a broker may be silent
}

// flags is a flag set with the options that it fills.
type flags struct {
	*flag.FlagSet
	o *options
}

func newFlags(scenario string) flags {
	o := &options{ttl: -1}
	if err := o.broker.Set("amqp://guest:guest@127.0.0.1:5672/"); err != nil {
		panic(err) // a constant
	}
	name := "curfew-bench"
	if scenario != "" {
		name += " " + scenario
	}
	f := flags{flag.NewFlagSet(name, flag.ContinueOnError), o}
	f.BoolVar(&o.asJSON, "json", false, "print the result as one JSON object")
	return f
}

// loaded registers the flags of scenarios that load a broker.
func (f flags) loaded() {
	o := f.o
	f.Var(&o.broker, "uri", "the broker's `URI`, amqp://USER:PASSWORD@HOST:PORT/VHOST, or amqps: with TLS")
	f.BoolVar(&o.tls, "tls", false, "connect with TLS; default port: 5671")
	f.StringVar(&o.tlsCA, "tls-ca", "", "PEM `file` with the authorities to trust for the broker's certificate; default: the system's")
	f.BoolVar(&o.tlsAny, "tls-insecure", false, "accept any certificate")
	f.StringVar(&o.tlsCert, "tls-cert", "", "PEM `file` with a certificate to log in with (mechanism EXTERNAL) instead of the user in --uri")
	f.StringVar(&o.tlsKey, "tls-key", "", "PEM `file` with the certificate's key; default: the same file")
	f.whole(&o.pid, "pid", 0, 0, math.MaxInt32, "the broker's `process` id: also report its CPU time and memory; 0 = do not")
	f.BoolVar(&o.durable, "durable", false, "declare durable queues")
	f.BoolVar(&o.persistent, "persistent", false, "publish with delivery mode 2")
	f.Var(&o.queueArgs, "queue-args", "an argument for declaring the queues, `k=v`; may be repeated")
}

func (f flags) whole(to *int64, name string, initial, lo, hi int64, usage string) {
	*to = initial
	parse := func(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) }
	f.Var(bounded[int64]{to, lo, hi, parse, "a whole number"}, name, usage)
}

func (f flags) period(to *time.Duration, name string, initial, lo, hi time.Duration, usage string) {
	*to = initial
	f.Var(bounded[time.Duration]{to, lo, hi, config.ParseDuration, "a duration such as 10s,"}, name, usage)
}

func (f flags) sized(initial, lo int64) {
	f.whole(&f.o.size, "size", initial, lo, maxSize, "`bytes` in a message's body; with 8 or more the body carries its send time")
}

func (f flags) batched(initial int64) {
	f.whole(&f.o.batch, "batch", initial, 1, 100_000, "`messages` in each write of a publisher, fewer if they exceed 256 KiB; client libraries use 1")
}

func (f flags) paced() {
	f.whole(&f.o.rate, "rate", 0, 0, maxCount, "`messages` per second of all publishers together; 0 = as fast as the broker accepts them")
}

func (f flags) counted(initial, lo int64, usage string) {
	f.whole(&f.o.messages, "messages", initial, lo, maxCount, usage)
}

func (f flags) lasting() {
	f.counted(0, 0, "stop after so many `messages` of all publishers together; 0 = no limit. Without --duration the count alone decides")
	f.period(&f.o.duration, "duration", 10*time.Second, 0, 240*time.Hour, "publish for this `time`; 0s = no limit")
}

func (f flags) acking() {
	f.whole(&f.o.prefetch, "prefetch", 0, 0, math.MaxUint16, "unacknowledged `messages` per consumer; 0 = no limit, with automatic acknowledgement unless --ack-every is given")
	f.whole(&f.o.ackEvery, "ack-every", 0, 0, maxCount, "acknowledge every `N`th message, N > 1 with multiple set; 0 = 1 with --prefetch, otherwise automatic acknowledgement")
}

// expiring registers --ttl and --expiration. otherwise describes the default for their help.
func (f flags) expiring(otherwise string) {
	if otherwise != "" {
		otherwise = "; " + otherwise + " unless this or --expiration is given"
	}
	f.whole(&f.o.ttl, "ttl", -1, -1, maxMillis, "x-message-ttl of the queues in `milliseconds`; -1 = none"+otherwise)
	f.Var(&f.o.expiration, "expiration", "expiration of each message in milliseconds, drawn from `A..B`")
}

func (f flags) confirming(initial, lo int64) {
	f.whole(&f.o.confirm, "confirm", initial, lo, 1<<20, "use publisher confirms, at most `N` outstanding per publisher; 0 = no confirms")
}

// parse fills the options and checks combinations of them.
func (f flags) parse(args []string) (*options, error) {
	rest, err := flagusage.Parse(f.FlagSet, args)
	if err != nil {
		return nil, err
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("unexpected argument %q: options begin with --", rest[0])
	}
	if err := f.o.check(f.given()); err != nil {
		return nil, err
	}
	return f.o, nil
}

func (f flags) given() map[string]bool {
	m := make(map[string]bool)
	f.Visit(func(g *flag.Flag) { m[g.Name] = true })
	return m
}

func (o *options) check(given map[string]bool) error {
	if o.ackEvery == 0 && o.prefetch > 0 {
		o.ackEvery = 1
	}
	if o.prefetch > 0 && o.ackEvery > o.prefetch {
		return fmt.Errorf("--ack-every %d: must be from 1 to --prefetch, %d, or the broker stops sending before an acknowledgement is due", o.ackEvery, o.prefetch)
	}
	if o.fdatasync != "" && (o.confirm != 1 || o.rate != 0) {
		return errors.New("--fdatasync: needs --confirm 1, without --rate: the disk is measured between one message and the next")
	}
	if given["publishers"] && given["consumers"] && o.publishers+o.consumers == 0 {
		return errors.New("--publishers 0 --consumers 0: one of them must be from 1 to 10000")
	}
	if o.matching > o.queues {
		return fmt.Errorf("--matching %d: must be from 1 to --queues, %d", o.matching, o.queues)
	}
	if err := o.waits(given); err != nil {
		return err
	}
	if err := o.several(given); err != nil {
		return err
	}
	if err := o.secure(given); err != nil {
		return err
	}
	if given["messages"] && o.messages > 0 && !given["duration"] {
		o.duration = 0
	}
	for _, name := range []string{"x-message-ttl", "x-expires", "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-queue-type"} {
		if _, ok := o.queueArgs.table.Lookup(name); ok && o.sets(name) {
			return fmt.Errorf("--queue-args %s: this scenario sets it itself", name)
		}
	}
	return nil
}

// sets reports whether a flag other than --queue-args sets a queue argument.
func (o *options) sets(argument string) bool {
	switch argument {
	case "x-message-ttl":
		return o.ttl >= 0
	case "x-expires":
		return o.expires > 0
	case "x-queue-type":
		return o.queueType != ""
	default:
		return o.mortal && !o.held()
	}
}
