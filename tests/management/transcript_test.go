package management

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

var rewrite = flag.Bool("rewrite", false, "write what RabbitMQ's own tools print into the transcripts in testdata")

// A transcript is what Debian's rabbitmqctl and rabbitmqadmin do with Debian's RabbitMQ. What a line is, its first characters say:
//
//	# a comment
//	@ something that an AMQP client does
//	$ a call of rabbitmqctl or rabbitmqadmin
//	| a line on standard output
//	! a line on standard error
//	? the exit status, if it is not 0
//
// The lines of an outcome are compared without regard to their order, which RabbitMQ leaves to its tables.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	for name, file := range transcripts(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			replay(t, file, curfew(t))
		})
	}
}

// Our tool prints the same with RabbitMQ. Not in parallel: some of it is about all virtual hosts and users.
func TestTranscriptsWithRabbitMQ(t *testing.T) {
	for name, file := range transcripts(t) {
		t.Run(name, func(t *testing.T) {
			if *rewrite {
				record(t, file)
			}
			replay(t, file, rabbitmq(t))
		})
	}
}

// transcripts returns the files by name.
func transcripts(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("testdata/transcripts/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no transcripts", err)
	}
	byName := make(map[string]string)
	for _, file := range files {
		byName[strings.TrimSuffix(filepath.Base(file), ".txt")] = file
	}
	return byName
}

// record writes a transcript anew.
func record(t *testing.T, file string) {
	t.Helper()
	b := rabbitmq(t)
	b.tool = rabbitTool
	var played bytes.Buffer
	for _, block := range blocks(t, file) {
		if lists(block) {
			time.Sleep(3 * time.Second) // what its API tells is up to a second old
		}
		fmt.Fprintf(&played, "%s\n\n", strings.Join(perform(t, b, block), "\n"))
	}
	if err := os.WriteFile(file, bytes.TrimSuffix(played.Bytes(), []byte("\n")), 0o600); err != nil {
		t.Fatal(err)
	}
}

// replay expects of our rabbitmqctl, and of the broker b, what is in a transcript.
func replay(t *testing.T, file string, b broker) {
	t.Helper()
	for _, want := range blocks(t, file) {
		if b.late && !overHTTP(want) {
			continue
		}
		var got []string
		if !process.Poll(func() bool {
			got = perform(t, b, want)
			return same(got, want) || !b.late || !lists(want)
		}) || !same(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// overHTTP is whether RabbitMQ's HTTP API, which our tool calls, can do what a block does.
func overHTTP(block []string) bool {
	return !slices.ContainsFunc(block, func(line string) bool { return strings.HasPrefix(line, "$ rabbitmqctl set_log_level ") })
}

// lists is whether a block only looks at things.
func lists(block []string) bool {
	return slices.ContainsFunc(block, func(line string) bool {
		return strings.HasPrefix(line, "$ rabbitmqctl list_") || strings.HasPrefix(line, "$ rabbitmqadmin") && strings.Contains(line, " list ")
	})
}

// same compares outcomes. RabbitMQ leaves the order of things to its tables, and its HTTP API escapes texts as HTML.
func same(got, want []string) bool { return slices.Equal(unordered(got), unordered(want)) }

func unordered(lines []string) []string {
	s := make([]string, len(lines))
	for i, line := range lines {
		s[i] = html.UnescapeString(strings.Replace(line, "| ,{", "| {", 1))
	}
	slices.Sort(s)
	return s
}

// blocks returns the lines of each call in a transcript.
func blocks(t *testing.T, file string) [][]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all [][]string
	for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		all = append(all, strings.Split(block, "\n"))
	}
	return all
}

// perform does what the lines of a block say, and returns the block as it turned out.
func perform(t *testing.T, b broker, block []string) []string {
	t.Helper()
	var played []string
	for _, line := range block {
		switch {
		case strings.HasPrefix(line, "#"):
			played = append(played, line)
		case strings.HasPrefix(line, "@ "):
			played = append(played, line)
			act(t, b, words(t, line[2:]))
		case strings.HasPrefix(line, "$ "):
			played = append(played, line)
			status, stdout, stderr := b.run(t, words(t, line[2:]))
			played = append(played, prefixed("|", stdout)...)
			played = append(played, prefixed("!", plainUsage(stderr))...)
			if status != 0 {
				played = append(played, fmt.Sprintf("? %d", status))
			}
		}
	}
	return played
}

// plainUsage cuts off the usage line of a command, which differs in the options that there are.
func plainUsage(text string) string {
	before, _, _ := strings.Cut(text, "\n\x1b[1mUsage")
	before, _, _ = strings.Cut(before, "\nUsage\n")
	return before
}

func prefixed(mark, text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		all = append(all, strings.TrimSuffix(mark+" "+strings.TrimSuffix(line, "\n"), " "))
	}
	return all
}

// act does what rabbitmqctl cannot.
func act(t *testing.T, b broker, w []string) {
	t.Helper()
	verb, vhost, args := w[0], w[1], w[2:]
	ch := b.dial(t, "guest", "guest", vhost)
	var err error
	switch verb {
	case "queue":
		_, err = ch.QueueDeclare(args[0], true, false, false, false, arguments(t, args[1:]))
	case "exchange":
		err = ch.ExchangeDeclare(args[0], args[1], true, false, false, false, arguments(t, args[2:]))
	case "bind":
		err = ch.QueueBind(args[0], args[2], args[1], false, arguments(t, args[3:]))
	case "publish":
		err = publish(t, ch, args[0], args[1:]...)
	default:
		t.Fatalf("nobody knows how to %s", verb)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func arguments(t *testing.T, text []string) amqp091.Table {
	t.Helper()
	if len(text) == 0 {
		return nil
	}
	var table amqp091.Table
	d := json.NewDecoder(strings.NewReader(text[0]))
	d.UseNumber()
	if err := d.Decode(&table); err != nil {
		t.Fatal(err)
	}
	for name, value := range table {
		if n, ok := value.(json.Number); ok {
			i, err := n.Int64()
			if err != nil {
				t.Fatal(err)
			}
			table[name] = i
		}
	}
	return table
}

// publish sends persistent messages to a queue, and waits until they are there.
func publish(t *testing.T, ch *amqp091.Channel, queue string, bodies ...string) error {
	t.Helper()
	if err := ch.Confirm(false); err != nil {
		return err
	}
	for _, body := range bodies {
		m := amqp091.Publishing{Body: []byte(body), DeliveryMode: amqp091.Persistent}
		confirm, err := ch.PublishWithDeferredConfirmWithContext(t.Context(), "", queue, false, false, m)
		if err != nil {
			return err
		}
		if _, err := confirm.WaitContext(t.Context()); err != nil {
			return err
		}
	}
	return nil
}

// words splits a line as a shell does, as far as quotes go.
func words(t *testing.T, line string) []string {
	t.Helper()
	var all []string
	var word strings.Builder
	quote, inWord := rune(0), false
	for _, r := range line + " " {
		switch {
		case r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case r == ' ' && inWord:
			all = append(all, word.String())
			word.Reset()
			inWord = false
		case r != ' ':
			word.WriteRune(r)
			inWord = true
		}
	}
	if quote != 0 {
		t.Fatalf("an open quote in %s", line)
	}
	return all
}
