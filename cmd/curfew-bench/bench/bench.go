// Package bench is the load generator behind "curfew-bench": it drives any AMQP 0-9-1 broker over raw sockets and measures rates,
// latencies, how late messages and queues expire and, if it knows the broker's process, its CPU time and memory.
//
// It shares the machine with the broker, so it has to be cheap. Publishers write prepared messages, in which only the stamps change.
// Consumers parse deliveries in place in a large buffer, without allocation, and acknowledge the messages of one read in one write.
package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	flagusage "github.com/curfewmq/curfew/cmd/curfew/usage"
)

// scenario is a kind of load.
type scenario struct {
	name, about string
	register    func(flags)
	start       func(*load) measurement
	brokerless  bool // it does not use a broker, and has no flags for one
}

// measurement is one run of a scenario. load provides its connections and the samples of the broker's process.
type measurement interface {
	run(ctx context.Context) error
	report(r *report)
}

func (sc scenario) flags() flags {
	f := newFlags(sc.name)
	if !sc.brokerless {
		f.loaded()
	}
	sc.register(f)
	return f
}

func scenarios() []scenario {
	return []scenario{
		{name: "", about: "publishers and consumers: rates, end-to-end latency, cost per message", register: loadFlags, start: startLoad},
		{name: "backlog", about: "a queue without consumers: memory per message, then the drain", register: backlogFlags, start: startBacklog},
		{name: "expire", about: "messages that all expire into a dead-letter queue: rate and cost per message", register: expireFlags, start: startExpire},
		{name: "lateness", about: "lateness of messages that expire, are released from a hold or are scheduled", register: latenessFlags, start: startLateness},
		{name: "storm", about: "latencies of bystanders while many messages of one queue fall due at once", register: stormFlags, start: startStorm},
		{name: "redrive", about: "dead letters moved back by the management API: rate, and latencies of bystanders", register: redriveFlags, start: startRedrive},
		{name: "retries", about: "messages that are rejected, wait in a queue with a TTL and come back: cost per round", register: retriesFlags, start: startRetries},
		{name: "fanout", about: "an exchange that copies each message to many queues: cost per delivery", register: fanoutFlags, start: startFanout},
		{name: "topic", about: "a topic exchange with many patterns, few of which match: cost per delivery", register: topicFlags, start: startTopic},
		{name: "direct", about: "a direct exchange with a queue for each of many keys: cost per delivery", register: directFlags, start: startDirect},
		{name: "hash", about: "an exchange that sends each message to one of many queues, such as x-consistent-hash: cost per delivery", register: hashFlags, start: startHash},
		{name: "crowd", about: "many quiet connections: memory, idle CPU, and latency of the few messages", register: crowdFlags, start: startCrowd},
		{name: "leases", about: "queues with x-expires: declare rate, memory, and lateness of their deletion", register: leasesFlags, start: startLeases},
		{name: "failover", about: "failing nodes of a cluster: the longest pause of publishers and consumers for each fault, and lost messages", register: failoverFlags, start: startFailover},
		{name: "floor", about: "a relay instead of a broker: the least that passing messages on costs this machine", register: floorFlags, start: startFloor, brokerless: true},
	}
}

// env is the environment of a run; tests replace it.
type env struct {
	http           func(*http.Request) (*http.Response, error)
	dial           func(ctx context.Context, addr string) (net.Conn, error)
	relay          func() (*relay, error)
	pace           func() (pacer, error)
	proc           string
	stdout, stderr io.Writer
}

// Main runs "curfew-bench" with the arguments after the program's name. It writes the result to stdout, progress and errors to
// stderr, and returns the exit status: 0, 1 if the run failed, 2 if the command line is wrong.
func Main(args []string, stdout, stderr io.Writer) int {
	if len(args) == 1 && args[0] == relayCommand {
		return relayMain(os.Stdin, stdout, stderr)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var d net.Dialer
	e := env{
		dial:   func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) },
		http:   (&http.Client{Transport: &http.Transport{}}).Do,
		relay:  startRelay,
		pace:   newPacer,
		proc:   "/proc",
		stdout: stdout,
		stderr: stderr,
	}
	return e.main(ctx, args)
}

func (e *env) main(ctx context.Context, args []string) int {
	sc, args, ok := e.choose(args)
	if !ok {
		return 2
	}
	f := sc.flags()
	o, err := f.parse(args)
	if errors.Is(err, flag.ErrHelp) {
		help(e.stdout, f, sc)
		return 0
	}
	if err != nil {
		fmt.Fprintf(e.stderr, "%s: %v\nRun \"%s --help\" for help.\n", f.Name(), err, f.Name())
		return 2
	}
	if err := e.perform(ctx, sc, o); err != nil {
		fmt.Fprintln(e.stderr, "curfew-bench:", err)
		return 1
	}
	return 0
}

func (e *env) choose(args []string) (scenario, []string, bool) {
	all := scenarios()
	if len(args) == 0 || args[0] == "" || args[0][0] == '-' {
		return all[0], args, true
	}
	for _, sc := range all[1:] {
		if sc.name == args[0] {
			return sc, args[1:], true
		}
	}
	fmt.Fprintf(e.stderr, "curfew-bench: unknown scenario %q; the scenarios are:\n", args[0])
	list(e.stderr)
	return scenario{}, nil, false
}

func list(w io.Writer) {
	for _, sc := range scenarios() {
		fmt.Fprintf(w, "  curfew-bench %-9s %s\n", sc.name, sc.about)
	}
}

func help(w io.Writer, f flags, sc scenario) {
	f.VisitAll(func(g *flag.Flag) {
		if g.DefValue != "" && g.DefValue != "false" {
			g.Usage += " (default " + g.DefValue + ")"
		}
	})
	flagusage.Page(w, f.Name()+": "+sc.about, f.Name()+" [FLAGS]", f.FlagSet, "")
	if sc.name == "" {
		fmt.Fprintln(w, "\nScenarios:")
		list(w)
	}
}

func (e *env) perform(ctx context.Context, sc scenario, o *options) error {
	s, err := e.begin(ctx, o, !sc.brokerless)
	if err != nil {
		return err
	}
	l := &load{session: s, f: s.newFleet(ctx)}
	m := sc.start(l)
	err = m.run(ctx)
	if e := l.f.stop(); err == nil {
		err = e
	}
	if err == nil {
		err = s.failed
	}
	if err := errors.Join(err, s.end()); err != nil {
		return err
	}
	r := &report{scenario: sc.name}
	m.report(r)
	if o.asJSON {
		return r.writeJSON(e.stdout)
	}
	return r.writeText(e.stdout)
}
