package cluster

import (
	"bufio"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/curfewmq/curfew/tests/process"
)

// AwaitProgress waits until each client had some confirms and messages that it had not had before.
func AwaitProgress(t *testing.T, all ...*Survivor) {
	t.Helper()
	const more = 10
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

// Survivor is a client that publishes and consumes, by programs of the tests. It prints "confirmed N" and "received N" for message N, from 0 on, and "published N" once it was told to publish
// no more, by the end of its input, and N are confirmed.
type Survivor struct {
	t    *testing.T
	name string
	stop func()

	mu        sync.Mutex // guards the rest
	confirmed int        // messages: all up to there
	published int        // the last word; -1 = not yet
	received  map[int]int
	kill      time.Time // zero: it has had a confirm since
	pauses    []time.Duration
}

// StartSurvivor starts a program, or with nil the client that is in Go. Its queue is called as the library.
func StartSurvivor(t *testing.T, name string, program *exec.Cmd, urls []string) *Survivor {
	t.Helper()
	s := &Survivor{t: t, name: name, published: -1, received: map[int]int{}}
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
func (s *Survivor) inProcess(urls []string) {
	lines, out := io.Pipe()
	client := newGoClient(s.name, urls, out)
	var running sync.WaitGroup
	running.Go(func() { s.read(lines) })
	s.stop = client.stop
	s.t.Cleanup(func() {
		client.end()
		_ = out.Close()
		running.Wait()
	})
}

// read takes what the program prints.
func (s *Survivor) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		word, number, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.Atoi(number)
		if err != nil {
			s.t.Errorf("%s printed %q", s.name, lines.Text())
			continue
		}
		s.take(word, n)
	}
}

func (s *Survivor) take(word string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch word {
	case "confirmed":
		if n != s.confirmed {
			s.t.Errorf("%s: message %d is confirmed after %d messages", s.name, n, s.confirmed)
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
		s.t.Errorf("%s printed %q", s.name, word)
	}
}

// counts returns how many messages were confirmed, and how many different ones came.
func (s *Survivor) counts() (confirmed, received int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.confirmed, len(s.received)
}

// Killed says that the owner is killed now.
func (s *Survivor) Killed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kill = time.Now()
}

// Stop has the client publish no more.
func (s *Survivor) Stop() { s.stop() }

// Finish waits until the client, which was told to stop, publishes no more, and all that was confirmed has come.
func (s *Survivor) Finish() {
	s.t.Helper()
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
	s.t.Logf("%s: %d confirmed, %d came more than once, from kill to confirm %v", s.name, s.confirmed, again, s.pauses)
	switch {
	case s.published < 0:
		s.t.Errorf("%s does not end publishing", s.name)
	case s.published != s.confirmed:
		s.t.Errorf("%s has published %d messages, of which %d are confirmed", s.name, s.published, s.confirmed)
	case !arrived:
		s.t.Errorf("%s: these were confirmed, and did not come: %v", s.name, s.missing())
	}
}

// missing lists what was confirmed and has not come. The caller holds mu.
func (s *Survivor) missing() (all []int) {
	for n := range s.confirmed {
		if s.received[n] == 0 {
			all = append(all, n)
		}
	}
	return all
}
