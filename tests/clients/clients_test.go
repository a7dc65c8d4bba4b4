// Package clients uses the broker with clients that others have written, as a new user would: amqplib for Node.js, pika for Python,
// the command line tools of librabbitmq, and what the README shows.
package clients

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/tests/process"
	"github.com/curfewmq/curfew/tests/tools"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, process.Cleanup()) }

// run runs a program in dir and returns what it prints.
func run(t *testing.T, dir, stdin, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(stdin)
	var errors strings.Builder
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", program, strings.Join(args, " "), err, out, &errors)
	}
	return string(out)
}

// wantLines checks what a program has printed.
func wantLines(t *testing.T, got string, want ...string) {
	t.Helper()
	if all := strings.Join(want, "\n"); strings.TrimSpace(got) != all {
		t.Errorf("printed:\n%s\nwant:\n%s", got, all)
	}
}

// nodeFolder is a folder with amqplib in it, in the version that package-lock.json pins. Where it cannot be had the test is skipped, or fails.
func nodeFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	fillNodeFolder(t, dir)
	return dir
}

func fillNodeFolder(t *testing.T, dir string) {
	t.Helper()
	tools.Need(t, "node", "npm")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "node"))); err != nil {
		t.Fatal(err)
	}
	install := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		tools.Missing(t, "amqplib", "npm ci: %v\n%s", err, out)
	}
}

func TestNode(t *testing.T) {
	t.Parallel()
	dir := nodeFolder(t)
	b := process.Start(t, "")
	wantLines(t, run(t, dir, "", "node", "flows.js", b.URL()),
		"a short life behind a long one",
		"a reply queue that expires",
		"confirms and returns",
		"a full queue says no",
		"acknowledgements",
		"exchanges",
		"priorities",
		"a consumer is told that its queue is gone",
		"headers keep their types",
		"refusals",
	)
}

func TestPython(t *testing.T) {
	t.Parallel()
	python := tools.Pika(t)
	b := process.Start(t, "")
	wantLines(t, run(t, "testdata", "", python, "flows.py", b.URL()),
		"a short life behind a long one",
		"a reply queue that expires",
		"direct reply",
		"confirms",
		"transactions",
		"consuming",
		"leases",
	)
}

func TestTools(t *testing.T) {
	t.Parallel()
	tools.Need(t, "amqp-declare-queue", "amqp-publish", "amqp-get", "amqp-consume", "amqp-delete-queue")
	url := "--url=" + process.Start(t, "").URL()
	wantLines(t, run(t, "", "", "amqp-declare-queue", url, "--queue=hello", "--durable"), "hello")
	run(t, "", "", "amqp-publish", url, "--routing-key=hello", "--body=one")
	run(t, "", "two\nthree\n", "amqp-publish", url, "--routing-key=hello", "--line-buffered", "--persistent")
	wantLines(t, run(t, "", "", "amqp-get", url, "--queue=hello"), "one")
	wantLines(t, run(t, "", "", "amqp-consume", url, "--queue=hello", "--count=2", "--prefetch-count=1", "cat"), "two", "three")
	run(t, "", "", "amqp-publish", url, "--routing-key=hello", "--body=four")
	wantLines(t, run(t, "", "", "amqp-delete-queue", url, "--queue=hello"), "1")
}
