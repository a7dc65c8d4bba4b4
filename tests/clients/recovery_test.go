package clients

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/curfewmq/curfew/tests/cluster"
	"github.com/curfewmq/curfew/tests/process"
	"github.com/curfewmq/curfew/tests/tools"
)

// killsVariable sets how often the owner is killed below the clients.
const killsVariable = "KILLS"

// libraries are programs that publish with confirms and consume with acknowledgements. Each recovers as the page about clusters says for
// its library. The functions prepare them, in a folder of their own.
var libraries = []struct {
	name    string
	prepare func(t *testing.T, dir string) *exec.Cmd // nil = it is in this process
}{
	{"amqp091-go", nil},
	{"pika", preparePika},
	{"amqp-connection-manager", prepareNode},
	{"kombu", prepareKombu},
	{"bunny", prepareBunny},
	{"Java", prepareJava},
}

func preparePika(t *testing.T, _ string) *exec.Cmd {
	t.Helper()
	return exec.Command(tools.Pika(t), filepath.Join("testdata", "recovery.py"))
}

func prepareKombu(t *testing.T, _ string) *exec.Cmd {
	t.Helper()
	return exec.Command(tools.Python(t, "kombu"), filepath.Join("testdata", "recovery_kombu.py"))
}

func prepareNode(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	fillNodeFolder(t, dir)
	return exec.Command("node", filepath.Join(dir, "recovery.js"))
}

func prepareBunny(t *testing.T, _ string) *exec.Cmd {
	t.Helper()
	tools.Need(t, "ruby")
	if out, err := exec.Command("ruby", "-e", "require 'bunny'").CombinedOutput(); err != nil {
		tools.Missing(t, "ruby-bunny", "%s", out)
	}
	return exec.Command("ruby", filepath.Join("testdata", "recovery.rb"))
}

func prepareJava(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	return exec.Command("java", "-cp", compileJava(t, "Recovery.java", dir), "Recovery")
}

// The owner of the clients' vhost is killed again and again. The clients go on each time, by the recovery of their libraries, and all that
// was confirmed comes.
func TestRecovery(t *testing.T) {
	kills := 2
	if set := os.Getenv(killsVariable); set != "" {
		var err error
		if kills, err = strconv.Atoi(set); err != nil || kills < 1 {
			t.Fatalf("%s is %q: it is how often the owner is killed, 1 or more", killsVariable, set)
		}
	}
	c := cluster.New(t, "", t.TempDir())
	var urls []string
	for _, n := range c.Nodes {
		n.Clients = cluster.Address(t, n.Number)
		urls = append(urls, "amqp://guest:guest@"+n.Clients)
	}
	c.StartAll()
	var all []*survivor
	for _, l := range libraries {
		dir := t.TempDir() // longer than the part that prepares it
		t.Run(l.name, func(st *testing.T) {
			var program *exec.Cmd
			if l.prepare != nil {
				program = l.prepare(st, dir)
			}
			all = append(all, startSurvivor(t, l.name, program, urls))
		})
	}
	awaitProgress(t, all, 10)
	for range kills {
		c.AwaitSpare()
		owner := c.Owner("/")
		for _, s := range all {
			s.killed()
		}
		owner.Kill()
		awaitProgress(t, all, 10)
		owner.Launch()
		owner.AwaitReady()
	}
	for _, s := range all {
		s.stop()
	}
	for _, s := range all {
		s.finish()
	}
}

// awaitProgress waits until each client had this many confirms and messages that it had not had before.
func awaitProgress(t *testing.T, all []*survivor, more int) {
	t.Helper()
	for _, s := range all {
		confirmed, received := s.counts()
		if !process.Poll(func() bool {
			c, r := s.counts()
			return c >= confirmed+more && r >= received+more
		}) {
			c, r := s.counts()
			t.Fatalf("%s does not go on: it had %d confirms and %d messages, and has %d and %d", s.name, confirmed, received, c, r)
		}
	}
}

// survivor is a client. It prints "confirmed N" and "received N" for message N, from 0 on, and "published N" once it was told to publish
// no more, by the end of its input, and N are confirmed.
type survivor struct {
	*testing.T
	name string
	stop func()

	mu        sync.Mutex // guards the rest
	confirmed int        // messages: all up to there
	published int        // the last word; -1 = not yet
	received  map[int]int
	kill      time.Time // zero: it has had a confirm since
	pauses    []time.Duration
}

func startSurvivor(t *testing.T, name string, program *exec.Cmd, urls []string) *survivor {
	t.Helper()
	s := &survivor{T: t, name: name, published: -1, received: map[int]int{}}
	if program == nil {
		s.inProcess(urls)
		return s
	}
	program.Args = append(append(program.Args, name), urls...)
	in, err := program.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var notes strings.Builder
	program.Stderr = &notes
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		s.read(out)
	}()
	s.stop = func() { _ = in.Close() } // it may have ended
	t.Cleanup(func() {
		_ = program.Process.Kill() // likewise
		<-read
		_ = program.Wait() // it was killed
		if t.Failed() {
			t.Logf("%s printed on standard error:\n%s", name, &notes)
		}
	})
	return s
}

// inProcess starts the client that is in Go.
func (s *survivor) inProcess(urls []string) {
	lines, out := io.Pipe()
	client := newGoClient(s.name, urls, out)
	var running sync.WaitGroup
	running.Go(func() { s.read(lines) })
	s.stop = client.stop
	s.Cleanup(func() {
		client.end()
		_ = out.Close()
		running.Wait()
	})
}

// read takes what the program prints.
func (s *survivor) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		word, number, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.Atoi(number)
		if err != nil {
			s.Errorf("%s printed %q", s.name, lines.Text())
			continue
		}
		s.take(word, n)
	}
}

func (s *survivor) take(word string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch word {
	case "confirmed":
		if n != s.confirmed {
			s.Errorf("%s: message %d is confirmed after %d messages", s.name, n, s.confirmed)
		}
		s.confirmed = n + 1
		if !s.kill.IsZero() {
			s.pauses = append(s.pauses, time.Since(s.kill))
			s.kill = time.Time{}
		}
	case "received":
		s.received[n]++
	case "published":
		s.published = n
	default:
		s.Errorf("%s printed %q", s.name, word)
	}
}

// counts returns how many messages were confirmed, and how many different ones came.
func (s *survivor) counts() (confirmed, received int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.confirmed, len(s.received)
}

// killed says that the owner is killed now.
func (s *survivor) killed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kill = time.Now()
}

// finish waits until the client, which was told to stop, publishes no more, and all that was confirmed has come.
func (s *survivor) finish() {
	s.Helper()
	arrived := process.Poll(func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.published >= 0 && len(s.missing()) == 0
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	again := 0
	for _, times := range s.received {
		again += times - 1
	}
	s.Logf("%s: %d confirmed, %d came more than once, from kill to confirm %v", s.name, s.confirmed, again, s.pauses)
	switch {
	case s.published < 0:
		s.Errorf("%s does not end publishing", s.name)
	case s.published != s.confirmed:
		s.Errorf("%s has published %d messages, of which %d are confirmed", s.name, s.published, s.confirmed)
	case !arrived:
		s.Errorf("%s: these were confirmed, and did not come: %v", s.name, s.missing())
	}
}

// missing lists what was confirmed and has not come. The caller holds mu.
func (s *survivor) missing() (all []int) {
	for n := range s.confirmed {
		if s.received[n] == 0 {
			all = append(all, n)
		}
	}
	return all
}
