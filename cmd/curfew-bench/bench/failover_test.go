package bench

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A fault of 400 ms causes a pause of 400 ms, and the period without a fault has none. Nothing is lost, and the run continues. Messages
// are published at whole milliseconds and the fault begins between two of them: otherwise it would depend on the order of goroutines
// whether the messages of that instant are lost or repeated. For the same reason it ends between two attempts to connect, 10 ms apart.
func TestFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBroker()
		time.AfterFunc(2500*time.Millisecond+500*time.Microsecond, func() { b.fail(395 * time.Millisecond) })
		got := runScenario(t, b, "failover --rate 1000 --faults 2 --every 3s --queue-type quorum --urls amqp://a,amqp://b:1,amqp://c")
		for key, want := range map[string]float64{
			"faults": 2, "nacked": 0, "lost": 0, "duplicates": 0, "publisher_connections": 2, "consumer_connections": 2,
			"confirm_pause_max_ms": 400, "delivery_pause_max_ms": 400, "confirm_pause_p50_ms": 1, "delivery_pause_p50_ms": 1,
		} {
			v, ok := got[key].(float64)
			if within := 11.0; !ok || v < want || v > want+within && strings.HasSuffix(key, "_ms") || v != want && !strings.HasSuffix(key, "_ms") {
				t.Errorf("%s is %v, want %v", key, got[key], want)
			}
		}
		if all, ok := got["confirm_pauses_ms"].([]any); !ok || len(all) != 2 {
			t.Errorf("pauses of confirms: %v, want one for each fault", got["confirm_pauses_ms"])
		}
	})
}

// Messages that were confirmed and never delivered are counted, after the run has waited for them.
func TestFailoverCountsWhatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBroker()
		b.lose = 3
		b.refuse = 2
		got := runScenario(t, b, "failover --rate 100 --faults 1 --every 1s --confirm 7 --batch 3")
		if got["lost"] != 3.0 || got["nacked"] != 2.0 {
			t.Errorf("lost %v, refused %v; want 3 and 2", got["lost"], got["nacked"])
		}
	})
}

// The command of a fault gets the fault's number and the addresses of the clients in variables.
func TestFailoverRunsTheCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBroker()
		e, stdout, stderr := b.env(t)
		args := strings.Fields("failover --rate 100 --faults 2 --every 1s --json --urls amqp://a,amqp://b --fault")
		if status := e.main(t.Context(), append(args, `echo "fault $FAULT of $QUEUE at $PUBLISHER and $CONSUMER"`)); status != 0 {
			t.Fatalf("exit status %d: %s", status, stderr)
		}
		for _, want := range []string{"fault 1 of bench-", "fault 2 of bench-", " at a:5672 and b:5672\n"} {
			if !strings.Contains(stderr.String(), want) {
				t.Errorf("the command did not print %q: %s", want, stderr)
			}
		}
		var result map[string]any
		if err := json.Unmarshal(stdout.Bytes(), &result); err != nil || result["faults"] != 2.0 {
			t.Errorf("got %s, %v", stdout, err)
		}
	})
}

func TestFailoverSaysWhatFailed(t *testing.T) {
	for _, tt := range []struct{ name, command, want string }{
		{"command", "exit 7", "--fault, number 1: exit status 7"},
		{"no recovery", "true", "fault 1: messages have not resumed, for 2m0s: publisher: --uri 127.0.0.1:5672: connection refused"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newFakeBroker()
				if tt.name == "no recovery" {
					time.AfterFunc(1500*time.Millisecond, func() { b.fail(time.Minute * 3) })
				}
				e, _, stderr := b.env(t)
				args := strings.Fields("failover --rate 100 --faults 1 --every 1s --fault")
				if status := e.main(t.Context(), append(args, tt.command)); status != 1 {
					t.Errorf("exit status %d, want 1", status)
				}
				if !strings.Contains(stderr.String(), tt.want) {
					t.Errorf("got %q, want %q", stderr, tt.want)
				}
				time.Sleep(time.Hour)
			})
		})
	}
}

func TestFailoverOptions(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"--urls amqp://a --uri amqp://b", "--uri, --urls: only one of them"},
		{"--urls amqp://a,http://b", `"http://b" must be amqp://`},
		{"--urls amqp://a,amqps://b", "--urls: all of them with TLS (amqps), or none"},
		{"--queue-type quorum --queue-args x-queue-type=classic", "--queue-args x-queue-type: this scenario sets it itself"},
		{"--size 7", "a whole number from 8 to"},
		{"--faults 0", "a whole number from 1 to"},
	} {
		_, err := scenarioFlags(t, "failover").parse(strings.Fields(tt.args))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.args, err, tt.want)
		}
	}
}

func scenarioFlags(t *testing.T, name string) flags {
	t.Helper()
	for _, sc := range scenarios() {
		if sc.name == name {
			return sc.flags()
		}
	}
	t.Fatalf("there is no scenario %s", name)
	return flags{}
}

// Confirms arrive singly, for several messages, in any order, and repeatedly; each message counts once.
func TestUnconfirmed(t *testing.T) {
	var l ledger
	u := unconfirmed{l: &l}
	u.send(l.publish(5), 5)
	u.settle(confirm{tag: 2})
	u.settle(confirm{tag: 2})
	u.settle(confirm{tag: 3, multiple: true})
	u.settle(confirm{tag: 99})
	if u.left != 2 || l.count(confirmed) != 3 || l.doubtful() != 2 {
		t.Errorf("%d left, %d confirmed, %d in doubt; want 2, 3, 2", u.left, l.count(confirmed), l.doubtful())
	}
	u.send(l.publish(1), 1)
	u.settle(confirm{tag: 5, nack: true})
	u.settle(confirm{multiple: true})
	if u.left != 0 || l.count(confirmed) != 5 || l.count(refused) != 1 || l.doubtful() != 0 {
		t.Errorf("%d left, %d confirmed, %d refused; want 0, 5, 1", u.left, l.count(confirmed), l.count(refused))
	}
	l.mark(0, came)
	l.mark(0, came)
	l.mark(77, came)
	if l.missing() != 4 || l.repeated() != 1 {
		t.Errorf("%d missing, %d again; want 4, 1", l.missing(), l.repeated())
	}
}
