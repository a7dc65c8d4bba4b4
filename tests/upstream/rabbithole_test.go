package upstream

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/tests/process"
	"github.com/curfewmq/curfew/tests/tools"
)

// RabbitHole is the HTTP client of the RabbitMQ team for Go. It is no dependency of ours, not even of the tests: they fetch it,
// and what it needs, to run its suite.
const (
	rabbitHole = "github.com/michaelklishin/rabbit-hole/v2@v2.12.0"
	// rabbitHoleSum is what go.sum would have.
	rabbitHoleSum = "h1:946p6jOYFcVJdtBBX8MwXvuBkpPjwm1Nm2Qg8oX+uFk="
	// passingSpecs is how many there are, without those absent.
	passingSpecs = 124
)

// absent are the specs of what this broker does not have.
var absent = []struct {
	reason string
	specs  []string
}{
	{"wants the counts of the last half hour: the broker measures when somebody asks, and keeps no history", []string{
		"GET /queues with arguments returns decoded response",
		"GET /queues/{vhost} with arguments returns decoded response",
	}},
	{"there is no federation: upstreams are kept, for RabbitMQs that get the definitions, neither checked nor connected to", []string{
		"PUT /api/parameters/federation-upstream/{vhost}/{upstream} when the upstream definition is bad returns a 400 error response",
		"GET /api/federation-links when there are no links returns an empty response",
		"GET /api/federation-links/{vhost} when there are no links returns an empty response",
		"GET /api/federation-links/{vhost} when there are links returns the list of links",
	}},
	{"there are no shovels: their definitions are kept, and none of them runs", []string{
		"GET /shovels/{vhost} reports status of Shovels in target virtual host",
	}},
	{"counts the parameters that a RabbitMQ has from the start; a broker that is no cluster has no internal_cluster_id", []string{
		"Global parameters GET /api/global-parameters returns all global parameters",
	}},
}

// clientSpecs is what the names of most specs begin with.
const clientSpecs = "RabbitMQ HTTP API client "

// spec is the outcome of one, as testdata/rabbithole_suite_test.go.txt prints it.
type spec struct {
	Name, Failure, At string
	Skipped           bool
}

func TestRabbitHole(t *testing.T) {
	t.Parallel()
	b := process.Start(t, "compat:\n  product: RabbitMQ\n  version: 3.13.7\n")
	prepare(t, b)
	suite := buildRabbitHole(t, b)
	reasons := map[string]string{}
	var skip []string
	for _, a := range absent {
		for _, name := range a.specs {
			reasons[clientSpecs+name] = a.reason
			skip = append(skip, regexp.QuoteMeta(clientSpecs+name))
		}
	}
	passed := 0
	for _, s := range suite.specs(t, "-ginkgo.skip=("+strings.Join(skip, "|")+")$") {
		reason, skipped := reasons[s.Name]
		delete(reasons, s.Name)
		t.Run(s.Name, func(t *testing.T) {
			switch {
			case s.Failure != "":
				t.Errorf("%s\n%s", s.At, s.Failure)
			case s.Skipped != skipped:
				t.Errorf("skipped is %v, want %v", s.Skipped, skipped)
			case skipped:
				t.Skip(reason)
			default:
				passed++
			}
		})
	}
	for name := range reasons {
		t.Errorf("the suite has no spec %q: it need not be absent", name)
	}
	t.Logf("%d specs of %s passed", passed, rabbitHole)
	if passed != passingSpecs && !t.Failed() {
		t.Errorf("%d specs passed, want %d", passed, passingSpecs)
	}
}

// prepare does what the suite's own scripts do with rabbitmqctl.
func prepare(t *testing.T, b *process.Process) {
	t.Helper()
	for _, call := range [][]string{
		{"add_vhost", "rabbit/hole"},
		{"set_permissions", "-p", "rabbit/hole", "guest", ".*", ".*", ".*"},
		{"set_cluster_name", "rabbitmq@localhost"},
	} {
		args := append([]string{"ctl", "--url", "http://" + b.Management}, call...)
		if out, err := exec.Command(process.Binary(t), args...).CombinedOutput(); err != nil {
			t.Fatalf("curfew %v: %v\n%s", args, err, out)
		}
	}
}

// holeSuite is the compiled suite.
type holeSuite struct{ dir, binary string }

// buildRabbitHole compiles a copy of the suite, in which the addresses of RabbitMQ on this machine are those of the broker b, and
// the time that RabbitMQ's statistics take is a short one: ours are never late.
func buildRabbitHole(t *testing.T, b *process.Process) holeSuite {
	t.Helper()
	s := holeSuite{dir: filepath.Join(t.TempDir(), "rabbit-hole")}
	if err := os.CopyFS(s.dir, os.DirFS(fetchRabbitHole(t))); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(b.AMQP)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(s.dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		rewriteFile(t, file, strings.NewReplacer(
			"http://127.0.0.1:15672", "http://"+b.Management,
			"localhost:5672/", b.AMQP+"/",
			"HealthCheckPortListener(5672)", "HealthCheckPortListener("+port+")",
			"BeEquivalentTo(5672)", "BeEquivalentTo("+port+")",
			"5000 * time.Millisecond", "100 * time.Millisecond",
		))
	}
	runner, err := os.ReadFile("testdata/rabbithole_suite_test.go.txt")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "rabbithole_suite_test.go"), runner, 0o600); err != nil {
		t.Fatal(err)
	}
	s.binary = filepath.Join(s.dir, "suite.test")
	fetch := exec.Command("go", "mod", "download")
	fetch.Dir = s.dir
	if out, err := fetch.CombinedOutput(); err != nil {
		tools.Missing(t, "rabbit-hole", "what %s needs cannot be fetched: %v\n%s", rabbitHole, err, out)
	}
	build := exec.Command("go", "test", "-c", "-o", s.binary, ".")
	build.Dir = s.dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go test -c: %v\n%s", err, out)
	}
	return s
}

func rewriteFile(t *testing.T, file string, r *strings.Replacer) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o600); err != nil { // the module cache is read-only, and so is its copy
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(r.Replace(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
}

// fetchRabbitHole returns the module's folder in the cache. Outside of any module, go.mod is of no concern.
func fetchRabbitHole(t *testing.T) string {
	t.Helper()
	tools.Want(t, "rabbit-hole")
	fetch := exec.Command("go", "mod", "download", "-json", rabbitHole)
	fetch.Dir = t.TempDir()
	fetch.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	out, err := fetch.Output()
	var module struct{ Dir, Sum, Error string }
	if e := json.Unmarshal(out, &module); e != nil || err != nil {
		tools.Missing(t, "rabbit-hole", "%s cannot be fetched: %v %s", rabbitHole, err, module.Error)
	}
	if module.Sum != rabbitHoleSum {
		t.Fatalf("%s has the sum %s, want %s", rabbitHole, module.Sum, rabbitHoleSum)
	}
	return module.Dir
}

// specs runs the suite and returns what came of each spec.
func (s holeSuite) specs(t *testing.T, flags ...string) []spec {
	t.Helper()
	cmd := exec.Command(s.binary, append([]string{"-test.timeout=5m"}, flags...)...)
	cmd.Dir = s.dir
	out, _ := cmd.CombinedOutput() // a failed spec makes it fail; each says so itself
	var all []spec
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		text, ok := bytes.CutPrefix(lines.Bytes(), []byte("spec "))
		if !ok {
			continue
		}
		var one spec
		if err := json.Unmarshal(text, &one); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		all = append(all, one)
	}
	if len(all) == 0 {
		t.Fatalf("the suite did not run:\n%s", out)
	}
	return all
}
