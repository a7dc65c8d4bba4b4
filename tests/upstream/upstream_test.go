// Package upstream runs the test suites of the RabbitMQ team's clients for Go against the broker: github.com/rabbitmq/amqp091-go speaks AMQP
// to it, github.com/michaelklishin/rabbit-hole HTTP.
package upstream

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/tests/process"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "4") // the default, which -parallel overrides: these tests wait more than they compute
	goleak.VerifyTestMain(m, process.Cleanup())
}

const (
	client = "github.com/rabbitmq/amqp091-go"
	// passing is how many tests, subtests and fuzz seeds of v1.16.0 pass: the 384 that there are, without the one waiting.
	passing = 383
)

// flaky is a test that fails now and then, whatever the broker does.
type flaky struct{ name, reason string }

// unsure are tests each of which runs apart from the others, and again if need be.
var unsure = []flaky{
	{"TestNotifyClosesAllChansAfterConnectionClose", "needs no broker, and fails when the machine is busy for a millisecond"},
	{
		"TestConnectionRecoverySkipAndContinueNoInfiniteLoop",
		"when channel.open-ok comes at once, the client may drop it while it still closes the channel before, and waits for ever",
	},
}

// waits finds the tests that do little but wait for seconds. They run in groups at the same time.
var waits = regexp.MustCompile(`^TestConnectionRecovery|NotificationOnFullListener$`)

const groups = 5

// waiting are the tests that need more than an AMQP server.
var waiting = []struct {
	reason string
	tests  []string
}{
	{"changes the memory watermark of a running broker with rabbitmqctl; tests/broker shows what it is about", []string{
		"TestConnection_Close_WhenMemoryAlarmIsActive",
	}},
}

// As RabbitMQ, because the suite leaves out what it believes only RabbitMQ can do.
const config = `
compat:
  product: RabbitMQ
  version: 4.1.0
`

func TestSuite(t *testing.T) {
	t.Parallel()
	suite := buildSuite(t)
	names := suite.list(t)
	var skip []string
	for _, w := range waiting {
		for _, name := range w.tests {
			if !slices.Contains(names, name) {
				t.Fatalf("the suite has no %s: it need not wait", name)
			}
			t.Run(name, func(t *testing.T) { t.Skip(w.reason) })
		}
		skip = append(skip, w.tests...)
	}
	var slow []string
	for _, name := range names {
		if waits.MatchString(name) && !slices.ContainsFunc(unsure, func(u flaky) bool { return u.name == name }) {
			slow = append(slow, name)
		}
	}
	var runs []func(*process.Process) results
	for _, u := range unsure {
		skip = append(skip, u.name)
		runs = append(runs, func(b *process.Process) results { return suite.runUnsure(t, b, u.name) })
	}
	for group := range slices.Chunk(slow, (len(slow)+groups-1)/groups) {
		runs = append(runs, func(b *process.Process) results {
			return suite.run(b, "-test.timeout=3m", "-test.run="+anyOf(group...))
		})
	}
	skip = append(skip, slow...)
	runs = append(runs, func(b *process.Process) results {
		return suite.run(b, "-test.timeout=3m", "-test.skip="+anyOf(skip...))
	})
	passed := 0
	for _, r := range atOnce(t, runs) {
		passed += r.report(t)
	}
	t.Logf("%d tests of %s passed", passed, client)
	if passed != passing && !t.Failed() {
		t.Errorf("%d tests passed, want %d", passed, passing)
	}
}

// atOnce makes all runs at the same time, each against a broker of its own.
func atOnce(t *testing.T, runs []func(*process.Process) results) []results {
	t.Helper()
	all := make([]results, len(runs))
	var running sync.WaitGroup
	for i, run := range runs {
		b := process.Start(t, config)
		running.Go(func() { all[i] = run(b) })
	}
	running.Wait()
	return all
}

// anyOf is a pattern for exactly these tests.
func anyOf(names ...string) string { return "^(" + strings.Join(names, "|") + ")$" }

// The suite passes by silence what it does not expect of the server it meets.
func TestAnnouncesItselfAsRabbitMQ(t *testing.T) {
	conn, err := amqp091.Dial(process.Start(t, config).URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := conn.Properties["product"]; got != "RabbitMQ" {
		t.Errorf("product %v, want RabbitMQ", got)
	}
	if got := conn.Properties["version"]; got != "4.1.0" {
		t.Errorf("version %v, want 4.1.0", got)
	}
}

// suite is the compiled suite.
type suite struct{ dir, binary string }

// buildSuite compiles the suite in a copy, because the module cache is read-only and shared. The copy drops connections through
// the management API of the broker it runs against, which is not the only one on this machine.
func buildSuite(t *testing.T) suite {
	t.Helper()
	out, err := exec.Command("go", "mod", "download", "-json", client).Output()
	if err != nil {
		t.Fatalf("go mod download: %v\n%s", err, out)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	s := suite{dir: filepath.Join(t.TempDir(), "amqp091-go")}
	if err := os.CopyFS(s.dir, os.DirFS(module.Dir)); err != nil {
		t.Fatal(err)
	}
	rewriteFile(t, filepath.Join(s.dir, "internal", "utils", "http.go"), strings.NewReplacer(
		`"errors"`, `"errors"; "os"`,
		`"http://localhost:15672/`, `"http://" + os.Getenv("MANAGEMENT") + "/`,
		`"http://localhost:"+port+"/`, `"http://" + os.Getenv("MANAGEMENT") + "/`,
	))
	s.binary = filepath.Join(s.dir, "suite.test")
	build := exec.Command("go", "test", "-c", "-tags", "integration", "-o", s.binary, ".")
	build.Dir = s.dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go test -c: %v\n%s", err, out)
	}
	return s
}

// list returns the names of all tests, examples and fuzz targets.
func (s suite) list(t *testing.T) []string {
	t.Helper()
	out, err := s.command(&process.Process{}, "-test.list=^(Test|Example|Fuzz)").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

func (s suite) command(b *process.Process, args ...string) *exec.Cmd {
	cmd := exec.Command(s.binary, args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "AMQP_URL="+b.URL(), "MANAGEMENT="+b.Management)
	return cmd
}

// run runs tests against a broker.
func (s suite) run(b *process.Process, flags ...string) results {
	out, err := s.command(b, append([]string{"-test.v", "-test.parallel=8"}, flags...)...).CombinedOutput()
	r := results{output: string(out), err: err}
	for line := range strings.Lines(r.output) {
		r.add(line)
	}
	return r
}

// runUnsure gives a test several chances.
func (s suite) runUnsure(t *testing.T, b *process.Process, name string) (r results) {
	t.Helper()
	for range 4 {
		if r = s.run(b, "-test.timeout=40s", "-test.run="+anyOf(name)); r.err == nil {
			break
		}
		t.Logf("%s failed: %v", name, r.err)
	}
	return r
}

// results are what a run of the suite printed.
type results struct {
	passed          int
	failed, skipped []string
	output          string
	err             error
}

// outcome is how package testing reports the end of a test or subtest.
var outcome = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+)`)

func (r *results) add(line string) {
	m := outcome.FindStringSubmatch(line)
	switch {
	case m == nil:
	case m[1] == "PASS":
		r.passed++
	case m[1] == "FAIL":
		r.failed = append(r.failed, m[2])
	default:
		r.skipped = append(r.skipped, m[2])
	}
}

// report fails the test if anything did, or was left out, and returns how many passed.
func (r results) report(t *testing.T) int {
	t.Helper()
	for _, name := range r.skipped {
		t.Errorf("upstream %s was skipped, and is not among those waiting", name)
	}
	if r.err != nil {
		t.Errorf("upstream %v failed: %v\n%s", r.failed, r.err, r.output)
	}
	return r.passed
}
