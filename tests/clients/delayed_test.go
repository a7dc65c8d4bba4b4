package clients

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
	"github.com/curfewmq/curfew/tests/tools"
)

// Programs that were written for RabbitMQ's delayed message exchange work unchanged, in four languages. What they print is the same.
var delayedLines = []string{
	"declared, and declared again",
	"came in order: 100,100,200,300,400,500",
	"without a delay: now",
	"held in its queue, and passed by others",
	"PRECONDITION_FAILED - inequivalent arg 'x-delayed-type' for exchange 'later' in vhost '/': received 'fanout' but current is 'direct'",
	"PRECONDITION_FAILED - invalid arg 'x-delayed-type' for exchange 'typeless' in vhost '/': expected one of direct, fanout, topic, headers, " +
		"x-message-deduplication, x-consistent-hash, x-modulus-hash, x-random",
}

func TestDelayedNode(t *testing.T) {
	t.Parallel()
	dir := nodeFolder(t)
	wantLines(t, run(t, dir, "", "node", "delayed.js", process.Start(t, "").URL()), delayedLines...)
}

func TestDelayedPython(t *testing.T) {
	t.Parallel()
	python := tools.Pika(t)
	wantLines(t, run(t, "testdata", "", python, "delayed.py", process.Start(t, "").URL()), delayedLines...)
}

func TestDelayedJava(t *testing.T) {
	t.Parallel()
	path := compileJava(t, "Delayed.java", t.TempDir())
	wantLines(t, run(t, "testdata", "", "java", "-cp", path, "Delayed", process.Start(t, "").URL()), delayedLines...)
}

// compileJava compiles a program with RabbitMQ's client for Java into a folder, and returns its class path.
func compileJava(t *testing.T, source, classes string) string {
	t.Helper()
	tools.Need(t, "java", "javac")
	path := javaClient(t)
	run(t, "testdata", "", "javac", "-cp", path, "-d", classes, filepath.Join("java", source))
	return path + string(os.PathListSeparator) + classes
}

// javaClient is the class path of RabbitMQ's client for Java where Debian has it: packages librabbitmq-client-java and libslf4j-java. JAVA_CLIENT
// names a folder for one that is not installed.
func javaClient(t *testing.T) string {
	t.Helper()
	var path []string
	for _, name := range []string{"amqp-client.jar", "slf4j-api.jar", "slf4j-nop.jar"} {
		jar := filepath.Join(os.Getenv("JAVA_CLIENT"), name)
		if _, err := os.Stat(jar); err != nil || os.Getenv("JAVA_CLIENT") == "" {
			jar = filepath.Join("/usr/share/java", name)
		}
		if _, err := os.Stat(jar); err != nil {
			tools.Missing(t, "librabbitmq-client-java", "%v", err)
		}
		path = append(path, jar)
	}
	return strings.Join(path, string(os.PathListSeparator))
}

func TestDelayedGo(t *testing.T) {
	t.Parallel()
	conn, err := process.Dial(process.Start(t, "").URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // the broker may be gone
	d := &delayed{T: t, conn: conn}
	d.run()
	wantLines(t, strings.Join(d.lines, "\n"), delayedLines...)
}

// delayed is the program with amqp091-go.
type delayed struct {
	*testing.T
	conn  *amqp091.Connection
	ch    *amqp091.Channel
	came  <-chan amqp091.Delivery
	lines []string
}

func (d *delayed) say(format string, args ...any) {
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *delayed) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

func declareLater(ch *amqp091.Channel, inner string) error {
	return ch.ExchangeDeclare("later", "x-delayed-message", true, false, false, false, amqp091.Table{"x-delayed-type": inner})
}

func (d *delayed) run() {
	var err error
	d.ch, err = d.conn.Channel()
	d.must(err)
	d.must(d.ch.Confirm(false))
	d.must(declareLater(d.ch, "direct"))
	d.must(declareLater(d.ch, "direct"))
	_, err = d.ch.QueueDeclare("work", true, false, false, false, nil)
	d.must(err)
	d.must(d.ch.QueueBind("work", "key", "later", false, nil))
	d.came, err = d.ch.Consume("work", "", true, false, false, false, nil)
	d.must(err)
	d.say("declared, and declared again")
	d.say("came in order: %s", d.burst())
	d.publish("later", "key", "now", nil)
	d.say("without a delay: %s", d.next().Body)
	d.pass()
	d.say("%s", d.refused(func(ch *amqp091.Channel) error { return declareLater(ch, "fanout") }))
	d.say("%s", d.refused(func(ch *amqp091.Channel) error {
		return ch.ExchangeDeclare("typeless", "x-delayed-message", true, false, false, false, nil)
	}))
}

func (d *delayed) publish(exchange, key, text string, headers amqp091.Table) *amqp091.DeferredConfirmation {
	d.Helper()
	m := amqp091.Publishing{Body: []byte(text), Headers: headers, DeliveryMode: amqp091.Persistent}
	sent, err := d.ch.PublishWithDeferredConfirm(exchange, key, false, false, m)
	d.must(err)
	return sent
}

func (d *delayed) next() amqp091.Delivery {
	d.Helper()
	got, open, inTime := process.Receive(d.came)
	if !open || !inTime {
		d.Fatal("nothing came")
	}
	return got
}

// burst publishes all at once, and again if that took so long that the order is uncertain.
func (d *delayed) burst() string {
	const brief = 90 * time.Millisecond // less than any two delays are apart
	for {
		sent := time.Now()
		var last *amqp091.DeferredConfirmation
		for _, ms := range []int32{500, 100, 300, 200, 100, 400} {
			last = d.publish("later", "key", strconv.Itoa(int(ms)), amqp091.Table{"x-delay": ms})
		}
		_, err := last.WaitContext(context.Background())
		d.must(err)
		took := time.Since(sent)
		var order []string
		for range 6 {
			got := d.next()
			ms, _ := strconv.Atoi(string(got.Body))
			if age := time.Since(sent); age < time.Duration(ms)*time.Millisecond || got.Headers["x-delay"] != int32(-ms) {
				d.Errorf("%d came after %v with x-delay %v", ms, age, got.Headers["x-delay"])
			}
			order = append(order, string(got.Body))
		}
		if took < brief {
			return strings.Join(order, ",")
		}
	}
}

// pass has a message pass one that is held.
func (d *delayed) pass() {
	sent := time.Now()
	d.publish("", "work", "held", amqp091.Table{"x-deliver-after": int32(150)})
	d.publish("", "work", "passes", nil)
	order := []string{string(d.next().Body), string(d.next().Body)}
	if age := time.Since(sent); !slices.Equal(order, []string{"passes", "held"}) || age < 150*time.Millisecond {
		d.Errorf("%v came, the last after %v", order, age)
	}
	d.say("held in its queue, and passed by others")
}

func (d *delayed) refused(act func(*amqp091.Channel) error) string {
	d.Helper()
	ch, err := d.conn.Channel()
	d.must(err)
	var e *amqp091.Error
	if err := act(ch); !errors.As(err, &e) || e.Code != amqp091.PreconditionFailed {
		d.Fatalf("refused with %v, want 406", err)
	}
	return e.Reason
}
