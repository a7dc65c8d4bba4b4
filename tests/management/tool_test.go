package management

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/tests/process"
)

// call runs a program with variables in its environment.
func call(environment []string, program string, args ...string) (status int, stdout, stderr string) {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), environment...)
	return outcome(cmd, "")
}

// However the tool is called, it is the same: curfew ctl, curfew rabbitmqctl, and a copy of the binary named rabbitmqctl.
func TestNames(t *testing.T) {
	t.Parallel()
	b := curfew(t)
	b.ctl(t, "add_vhost", "names")
	binary, err := filepath.Abs(process.Binary(t))
	if err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	duplicate := filepath.Join(t.TempDir(), "rabbitmqctl")
	if err := os.WriteFile(duplicate, all, 0o700); err != nil { //nolint:gosec // it is a program
		t.Fatal(err)
	}
	for _, name := range [][]string{{binary, "ctl"}, {binary, "rabbitmqctl"}, {duplicate}} {
		args := append(name[1:], "list_vhosts", "--silent")
		status, stdout, stderr := call([]string{"CURFEW_CTL_URL=http://" + b.api}, name[0], args...)
		if status != 0 || stdout != "/\nnames\n" {
			t.Errorf("%v: exit status %d\n%s%s", name, status, stdout, stderr)
		}
	}
}

// The program has the exit status, the output and the input that the tool has in the tests' process.
func TestTheToolIsTheProgram(t *testing.T) {
	t.Parallel()
	b := curfew(t)
	binary, err := filepath.Abs(process.Binary(t))
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "rabbitmqctl")
	if err := os.Symlink(binary, link); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		stdin  string
		args   []string
		status int
	}{
		{"", []string{"list_users"}, 0},
		{`{"vhosts":[{"name":"imported"}]}`, []string{"import_definitions"}, 0},
		{`{"vhosts":`, []string{"import_definitions"}, 65},
		{"", []string{"add_vhost", "imported"}, 0},
		{"", []string{"delete_vhost", "none"}, 65},
		{"", []string{"no_such_command"}, 64},
		{"", []string{"help", "list_queues"}, 0},
	} {
		cmd := exec.Command(link, tt.args...)
		cmd.Env = append(os.Environ(), "CURFEW_CTL_URL=http://"+b.api)
		status, stdout, stderr := outcome(cmd, tt.stdin)
		ours, out, errs := b.tool(t, tt.stdin, tt.args...)
		if status != tt.status || ours != status || out != stdout || errs != stderr {
			t.Errorf("%v: want exit status %d; of the program %d\n%s%sin this process %d\n%s%s", tt.args, tt.status, status, stdout, stderr, ours, out, errs)
		}
	}
}

// Over TLS, the tool believes in the broker's certificate when it is told to, and in no other.
func TestManagementOverTLS(t *testing.T) {
	t.Parallel()
	cert, key, _ := process.Certificate(t)
	p := process.Start(t, patient+fmt.Sprintf("listen: {management-tls: \"127.0.0.1:0\"}\ntls: {cert: %q, key: %q}\n", cert, key))
	b := of(t, p)
	b.newUser(t, "remote", "administrator")
	foreign, _, _ := process.Certificate(t)
	for _, tt := range []struct {
		how    string
		status int
		args   []string
	}{
		{"trusting the certificate", 0, []string{"--cacert", cert}},
		{"trusting any", 0, []string{"--insecure"}},
		{"trusting another", 69, []string{"--cacert", foreign}},
		{"trusting none", 69, nil},
		{"with a wrong password", 77, []string{"--cacert", cert, "--password", "wrong"}},
	} {
		args := append([]string{"ctl", "--url", "https://" + p.ManagementTLS, "--username", "remote", "--password", "remote"}, tt.args...)
		status, stdout, stderr := call(nil, process.Binary(t), append(args, "list_vhosts", "--silent")...)
		if status != tt.status || status == 0 && stdout != "/\n" {
			t.Errorf("%s: exit status %d, want %d\n%s%s", tt.how, status, tt.status, stdout, stderr)
		}
	}
	status, stdout, stderr := call([]string{"CURFEW_CTL_URL=https://" + p.ManagementTLS, "CURFEW_CTL_CACERT=" + cert}, process.Binary(t), "ctl", "ping")
	if status != 0 {
		t.Errorf("told by the environment: exit status %d\n%s%s", status, stdout, stderr)
	}
}

// Patterns are RE2: the error names what RabbitMQ's have and these do not.
func TestPatternOfAnotherKind(t *testing.T) {
	t.Parallel()
	b := curfew(t)
	status, _, stderr := b.tool(t, "", "set_policy", "notours", `^(?!amq\.).*`, `{"expires":1000}`)
	if status != 69 || !strings.Contains(stderr, "lookahead is not supported: patterns are RE2") {
		t.Errorf("exit status %d\n%s", status, stderr)
	}
	if out := b.ctl(t, "list_policies", "--silent"); strings.TrimSpace(out) != "" {
		t.Errorf("it was set all the same: %s", out)
	}
}
