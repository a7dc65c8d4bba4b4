package bench

import (
	"bytes"
	"context"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
)

func TestComplaintsNameTheFlagAndTheRange(t *testing.T) {
	cases := []struct {
		args string
		want []string
	}{
		{"--queues 0", []string{"--queues", `"0"`, "from 1 to 1000000"}},
		{"--size -1", []string{"--size", `"-1"`, "from 0 to 134217728"}},
		{"--size big", []string{"--size", `"big"`, "a whole number from 0 to 134217728"}},
		{"--prefetch 65536", []string{"--prefetch", "from 0 to 65535"}},
		{"--rate 1e6", []string{"--rate", `"1e6"`, "from 0 to 1000000000"}},
		{"--ttl 315360000001", []string{"--ttl", "from -1 to 315360000000"}},
		{"--duration 10", []string{"--duration", `"10"`, "such as 10s, from 0s to 240h0m0s"}},
		{"--duration -1s", []string{"--duration", "from 0s to 240h0m0s"}},
		{"--expiration 9..1", []string{"--expiration", `"9..1"`, "0 <= A <= B <= 315360000000"}},
		{"--expiration x..1", []string{"--expiration", "A..B"}},
		{"--expiration -5", []string{"--expiration", "A..B"}},
		{"--uri http://x", []string{"--uri", "amqp://USER:PASSWORD@HOST:PORT/VHOST"}},
		{"--uri amqp://", []string{"--uri", "amqp://USER:PASSWORD@HOST:PORT/VHOST"}},
		{"--queue-args x-max-length", []string{"--queue-args", "k=v"}},
		{"--queue-args a=1 --queue-args a=2", []string{"--queue-args", "a is given twice"}},
		{"--ack-every 300 --prefetch 200", []string{"--ack-every 300", "from 1 to --prefetch, 200"}},
		{"--ttl 5 --queue-args x-message-ttl=6", []string{"--queue-args x-message-ttl", "sets it itself"}},
		{"--fdatasync /tmp", []string{"--fdatasync", "--confirm 1"}},
		{"--fdatasync /tmp --confirm 1 --rate 5", []string{"--fdatasync", "--rate"}},
		{"--size 16 now", []string{`unexpected argument "now"`}},
		{"--publishers 0 --consumers 0", []string{"--publishers 0 --consumers 0", "from 1"}},
		{"--frobnicate", []string{"--frobnicate"}},
		{"hurricane", []string{`unknown scenario "hurricane"`, "curfew-bench storm", "curfew-bench leases"}},
		{"storm --confirm 0", []string{"--confirm", "from 1 to 1048576"}},
		{"storm --delay 1s", []string{"--delay", "from 2s to 1h0m0s"}},
		{"lateness --size 7", []string{"--size", "from 8 to 134217728"}},
		{"lateness --rate 0", []string{"--rate", "from 1 to"}},
		{"lateness --queue-args x-dead-letter-exchange=d", []string{"--queue-args x-dead-letter-exchange", "sets it itself"}},
		{"leases --expires 10", []string{"--expires", "from 1000 to 315360000000"}},
		{"leases --queue-args x-expires=9", []string{"--queue-args x-expires", "sets it itself"}},
		{"leases --window 1001", []string{"--window", "from 1 to 1000"}},
		{"backlog --messages 0", []string{"--messages", "from 1 to 1000000000"}},
		{"backlog --rate 5", []string{"--rate"}},
		{"backlog --by magic", []string{"--by", `"magic"`, "one of queue, exchange, hold"}},
		{"lateness --by queue", []string{"--by", "one of ttl, exchange, hold"}},
		{"storm --by hold --queue-args x-message-ttl=9 --ttl 5", []string{"--ttl"}},
		{"lateness --by hold --ttl 5", []string{"--ttl: messages do not expire with --by hold"}},
		{"redrive --management amqp://x", []string{"--management", "http://USER:PASSWORD@HOST:PORT"}},
		{"redrive --management http://x/api", []string{"--management", `"http://x/api"`}},
		{"redrive --per-second -1", []string{"--per-second", "from 0 to 1000000000"}},
		{"retries --rounds 0", []string{"--rounds", "from 1 to 1000000"}},
		{"retries --ttl -1", []string{"--ttl", "from 0 to 315360000000"}},
		{"topic --matching 0", []string{"--matching", "from 1 to 100000"}},
		{"topic --matching 4 --queues 3", []string{"--matching 4", "from 1 to --queues, 3"}},
		{"crowd --connections 1", []string{"--connections", "from 2 to 60000"}},
		{"--tls-ca ca.pem", []string{"--tls-ca", "--tls"}},
		{"--tls-insecure", []string{"--tls-insecure", "--tls"}},
		{"--tls-cert c.pem", []string{"--tls-cert", "--tls"}},
		{"--tls --tls-key k.pem", []string{"--tls-key needs --tls-cert"}},
		{"--tls --tls-cert /nowhere/c.pem", []string{"--tls-cert /nowhere/c.pem"}},
		{"--tls --tls-ca /nowhere/ca.pem", []string{"--tls-ca", "/nowhere/ca.pem"}},
		{"--tls --tls-ca ../README.md", []string{"--tls-ca ../README.md", "no certificate"}},
		{"--tls --tls-ca ca.pem --tls-insecure", []string{"only one of them"}},
		{"--batch 0", []string{"--batch", "from 1 to 100000"}},
		{"floor --uri amqp://h", []string{"--uri"}},
	}
	for _, c := range cases {
		t.Run(c.args, func(t *testing.T) {
			var stderr bytes.Buffer
			e := env{stderr: &stderr, dial: func(context.Context, string) (net.Conn, error) {
				t.Error("dialled in spite of a bad call")
				return nil, net.ErrClosed
			}}
			if status := e.main(t.Context(), strings.Fields(c.args)); status != 2 {
				t.Errorf("exit status %d, want 2", status)
			}
			for _, want := range append(c.want, "curfew-bench") {
				if !strings.Contains(stderr.String(), want) {
					t.Errorf("complaint does not contain %q:\n%s", want, stderr.String())
				}
			}
		})
	}
}

func TestHelpIsNoFailure(t *testing.T) {
	var stdout bytes.Buffer // it went to stderr, with flags in another style than those of all other commands
	e := env{stdout: &stdout}
	if status := e.main(t.Context(), []string{"--help"}); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
	for _, want := range []string{
		"\n  --publishers connections  connections that publish; 0 = none, other clients publish (default 1)\n", "\n  --durable                 declare", "curfew-bench storm",
	} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("help does not contain %q:\n%s", want, &stdout)
		}
	}
}

// The help once said that the default of --ttl is none, but without the flag messages lived for a second.
func TestHelpSaysWhatHoldsWithoutTTL(t *testing.T) {
	for scenario, want := range map[string]string{
		"expire": "; 1000 unless this or --expiration is given", "lateness": "; --expiration 100..10000 unless this or --expiration is given",
	} {
		var stdout bytes.Buffer
		e := env{stdout: &stdout}
		e.main(t.Context(), []string{scenario, "--help"})
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("%s: help does not contain %q:\n%s", scenario, want, &stdout)
		}
	}
}

// A wrong flag once printed forty lines of help.
func TestComplaintIsShort(t *testing.T) {
	var stderr bytes.Buffer
	e := env{stderr: &stderr}
	e.main(t.Context(), []string{"storm", "--confirm", "0"})
	const want = `curfew-bench storm: the flag --confirm does not take "0": must be a whole number from 1 to 1048576
Run "curfew-bench storm --help" for help.
`
	if stderr.String() != want {
		t.Errorf("got %s\nwant %s", &stderr, want)
	}
}

func parseLoad(t *testing.T, args ...string) *options {
	t.Helper()
	o, err := scenarios()[0].flags().parse(args)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestAcknowledgementModes(t *testing.T) {
	cases := []struct {
		args string
		want int64
	}{
		{"", 0},
		{"--prefetch 200", 1},
		{"--prefetch 200 --ack-every 50", 50},
		{"--ack-every 50", 50},
	}
	for _, c := range cases {
		if o := parseLoad(t, strings.Fields(c.args)...); o.ackEvery != c.want {
			t.Errorf("%q: acknowledges every %d, want %d", c.args, o.ackEvery, c.want)
		}
	}
}

func TestCountAloneDecidesUnlessDurationIsGiven(t *testing.T) {
	if o := parseLoad(t, "--messages", "5"); o.duration != 0 {
		t.Errorf("with --messages alone the duration is %v, want none", o.duration)
	}
	if o := parseLoad(t, "--messages", "5", "--duration", "3s"); o.duration != 3*time.Second {
		t.Errorf("with both the duration is %v, want 3s", o.duration)
	}
}

func TestTarget(t *testing.T) {
	cases := []struct {
		in   string
		want target
	}{
		{"amqp://h", target{addr: "h:5672", vhost: "/", user: "guest", password: "guest"}},
		{"amqp://u:p@h:1/", target{addr: "h:1", vhost: "/", user: "u", password: "p"}},
		{"amqp://u@h/v", target{addr: "h:5672", vhost: "v", user: "u", password: ""}},
		{"amqp://h/%2Fa%2Fb", target{addr: "h:5672", vhost: "/a/b", user: "guest", password: "guest"}},
		{"amqps://u:p@h/v", target{addr: "h:5671", vhost: "v", user: "u", password: "p", secure: true}},
		{"amqps://h:1", target{addr: "h:1", vhost: "/", user: "guest", password: "guest", secure: true}},
		{"amqp://[::1]:9/%2F", target{addr: "[::1]:9", vhost: "/", user: "guest", password: "guest"}},
	}
	for _, c := range cases {
		t.Run(c.in, func(t *testing.T) {
			var got target
			if err := got.Set(c.in); err != nil {
				t.Fatal(err)
			}
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			var again target
			if err := again.Set(got.String()); err != nil || again != got {
				t.Errorf("%s reads as %+v (%v), want %+v", got.String(), again, err, got)
			}
		})
	}
}

func TestQueueArgumentsAreTyped(t *testing.T) {
	o := parseLoad(t, "--queue-args", "x-queue-mode=lazy", "--queue-args", "x-max-length=10", "--queue-args", "x-single-active-consumer=true", "--queue-args", "x=a=b")
	want := amqp.Table{
		{Key: "x-queue-mode", Value: "lazy"},
		{Key: "x-max-length", Value: int64(10)},
		{Key: "x-single-active-consumer", Value: true},
		{Key: "x", Value: "a=b"},
	}
	if !reflect.DeepEqual(o.queueArgs.table, want) {
		t.Errorf("got %v, want %v", o.queueArgs.table, want)
	}
}
