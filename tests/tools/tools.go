// Package tools finds the programs of others that tests run. go test ./... skips such tests, whatever is installed, so that its verdict is the
// same on all machines. With REQUIRE_TOOLS=0 they run where the tools are there. With REQUIRE_TOOLS=1 it is a failure that one is missing which
// .ci/run installs; with REQUIRE_TOOLS=all, that any is, such as RabbitMQ.
package tools

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

// variable is the environment variable that has tools run, and makes missing ones failures.
const variable = "REQUIRE_TOOLS"

// installed are the tools that .ci/run installs, with their packages of Debian; "" = it is fetched by a test itself, from a registry that
// CI needs in any case.
var installed = map[string]string{
	"sh":                 "dash",
	"bash":               "",
	"curl":               "curl",
	"node":               "nodejs",
	"npm":                "npm",
	"pika":               "python3-pika",
	"amqp-consume":       "amqp-tools",
	"amqp-declare-queue": "amqp-tools",
	"amqp-delete-queue":  "amqp-tools",
	"amqp-get":           "amqp-tools",
	"amqp-publish":       "amqp-tools",
	"rabbitmqadmin":      "rabbitmq-server",
	"prometheus":         "prometheus",
	"promtool":           "prometheus",
	"amqplib":            "", // with amqp-connection-manager
	"rabbit-hole":        "",
}

// Need skips the test, or fails it, unless all these programs are in the path.
func Need(t *testing.T, programs ...string) {
	t.Helper()
	for _, name := range programs {
		Path(t, name)
	}
}

// skipped is the tools that tests of this process have not run.
var skipped struct {
	mu    sync.Mutex // guards tools
	tools []string
}

// Want skips the test unless the tools of others are to be run. A test calls it that looks for its tool by itself, before it does; and one
// that compiles or type-checks most of the project, which only CI needs to wait for.
func Want(t *testing.T, tool string) {
	t.Helper()
	if os.Getenv(variable) == "" && tool != "sh" && tool != "bash" {
		skip(t, tool, "not run: "+tool+"; "+variable+"=1 runs it, with the clients and tools of others")
	}
}

func skip(t *testing.T, tool, text string) {
	t.Helper()
	skipped.mu.Lock()
	if !slices.Contains(skipped.tools, tool) {
		skipped.tools = append(skipped.tools, tool)
	}
	skipped.mu.Unlock()
	t.Skip(text)
}

// Skipped says in one line which tools tests of this process have not run; "" = none.
func Skipped() string {
	skipped.mu.Lock()
	defer skipped.mu.Unlock()
	if len(skipped.tools) == 0 {
		return ""
	}
	slices.Sort(skipped.tools)
	return strings.Join(skipped.tools, ", ") + " (" + variable + "=1 runs them)"
}

// Path returns the path of a program. Without it the test is skipped, or fails.
func Path(t *testing.T, program string) string {
	t.Helper()
	Want(t, program)
	path, err := exec.LookPath(program)
	if err != nil {
		Missing(t, program, "it is not in the path")
	}
	return path
}

// Pika returns a Python that has the client pika, as [Python] does.
func Pika(t *testing.T) string {
	t.Helper()
	return Python(t, "pika")
}

// Python returns a Python that has a module, in the path or the system's. Without one the test is skipped, or fails.
func Python(t *testing.T, module string) string {
	t.Helper()
	Want(t, module)
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(name, "-c", "import "+module).Run() == nil {
			return name
		}
	}
	Missing(t, module, "no Python in the path has it")
	return ""
}

// Missing ends a test whose tool cannot be had, and says why. What the test cannot find by itself, it says so here.
func Missing(t *testing.T, tool, layout string, args ...any) {
	t.Helper()
	fails, text := missing(os.Getenv(variable), tool, fmt.Sprintf(layout, args...))
	if fails {
		t.Fatal(text)
	}
	skip(t, tool, text)
}

// missing decides by the variable's setting what the absence of a tool does to a test.
func missing(setting, tool, why string) (fails bool, text string) {
	debian, known := installed[tool]
	text = "no " + tool
	if debian != "" {
		text += " (of Debian's package " + debian + ")"
	}
	text += ": " + strings.TrimSpace(why)
	switch {
	case setting == "all", setting == "1" && known:
		return true, text + "; " + variable + "=" + setting + " makes that a failure"
	case setting == "", setting == "0", setting == "1":
		return false, text
	}
	return true, fmt.Sprintf("%s is %q: it can be 0, 1 (what .ci/run installs) or all", variable, setting)
}
