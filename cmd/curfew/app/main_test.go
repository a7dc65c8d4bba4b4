package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(asBroker) != "" {
		Main()
	}
	goleak.VerifyTestMain(m)
}

// invoke runs a command line as main does.
func invoke(args ...string) (code int, stdout, stderr string) {
	var out, errs strings.Builder
	code = run(args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestUsage(t *testing.T) {
	for _, tt := range []struct {
		name   string
		args   []string
		code   int
		stdout string // a part of it; "" = nothing is printed
		stderr string // all of it, or with … at its end the beginning
	}{
		{"nothing", nil, 2, "", "Curfew is a message broker for AMQP 0-9-1 …"},
		{"help", []string{"help"}, 0, "\nCommands:\n  serve       run the broker\n", ""},
		{"help flag", []string{"--help"}, 0, "\nStart here:\n  curfew serve\n", ""},
		{"help of help", []string{"help", "help"}, 0, "\nCommands:\n", ""},
		{"help of a command", []string{"help", "serve"}, 0, "Usage:\n  curfew serve [FLAGS]\n\nFlags:\n  --amqp ADDR ", ""},
		{"command's help flag", []string{"config", "-h"}, 0, "  --explain                 print above", ""},
		{"version's help", []string{"version", "--help"}, 0, "Usage:\n  curfew version [FLAGS]\n", ""},
		{"version", []string{"version"}, 0, "curfew " + version + " (go", ""},
		{"version flag", []string{"--version"}, 0, "curfew " + version + " (go", ""},
		{"typing error", []string{"sevre"}, 2, "", "curfew: unknown command \"sevre\"; did you mean \"serve\"?\nRun \"curfew help\" for help.\n"},
		{"load generator", []string{"bench", "--size", "1024"}, 2, "", "curfew: the load generator is a program of its own, curfew-bench\nRun \"curfew help\" for help.\n"},
		{"no such command", []string{"web"}, 2, "", "curfew: unknown command \"web\"\nRun \"curfew help\" for help.\n"},
		{"help of no command", []string{"help", "conf"}, 2, "", "curfew: unknown command \"conf\"; did you mean \"config\"?\nRun \"curfew help\" for help.\n"},
		{"flag for a command", []string{"--amqp", ":1"}, 2, "", "curfew: unknown flag \"--amqp\"\nRun \"curfew help\" for help.\n"},
		{"unknown flag", []string{"serve", "--ampq", ":1"}, 2, "", "curfew serve: unknown flag --ampq; did you mean --amqp?\nRun \"curfew help serve\" for help.\n"},
		{"flag without a value", []string{"config", "--data"}, 2, "", "curfew config: the flag --data needs a value\nRun \"curfew help config\" for help.\n"},
		{"argument too many", []string{"serve", "now"}, 2, "", "curfew serve: unexpected argument \"now\"\nRun \"curfew help serve\" for help.\n"},
		{"bad switch", []string{"config", "--explain=maybe"}, 2, "", "curfew config: the flag --explain takes no value, or true or false\nRun \"curfew help config\" for help.\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := invoke(tt.args...)
			if code != tt.code {
				t.Errorf("exit status %d, want %d", code, tt.code)
			}
			if !strings.Contains(stdout, tt.stdout) || tt.stdout == "" && stdout != "" {
				t.Errorf("stdout:\n%s\nwant in it:\n%s", stdout, tt.stdout)
			}
			if want, cut := strings.CutSuffix(tt.stderr, "…"); cut && !strings.HasPrefix(stderr, want) || !cut && stderr != want {
				t.Errorf("stderr:\n%s\nwant:\n%s", stderr, tt.stderr)
			}
		})
	}
}

// A binary built without the go tool's stamp once did not name its source.
func TestVersionNamesCommit(t *testing.T) {
	if _, stdout, _ := invoke("version"); !strings.Contains(stdout, "\ncommit ") {
		t.Errorf("without -ldflags: got %s", stdout)
	}
	commit, date = "0123abc", "2026-11-23T08:00:00Z" // as -ldflags sets them
	defer func() { commit, date = "", "" }()
	if _, stdout, _ := invoke("version"); !strings.Contains(stdout, "\ncommit 0123abc, 2026-11-23T08:00:00Z\n") {
		t.Errorf("got %s", stdout)
	}
	if _, stdout, _ := invoke("version", "--json"); !strings.Contains(stdout, `"commit": "0123abc",`+"\n"+`  "date": "2026-11-23T08:00:00Z",`) {
		t.Errorf("got %s", stdout)
	}
	if got := (&description{}).revision(); got != "unknown" {
		t.Errorf("without a commit: got %q", got)
	}
}

func TestEveryCommandHasHelp(t *testing.T) {
	for _, c := range commands() {
		if code, stdout, stderr := invoke("help", c.name); code != 0 || len(stdout+stderr) < 50 {
			t.Errorf("curfew help %s: exit status %d, %s%s", c.name, code, stdout, stderr)
		}
	}
}

// The defaults in the help pages are the real ones.
func TestHelpNamesDefaults(t *testing.T) {
	_, printed, _ := invoke("config")
	_, page, _ := invoke("help", "serve")
	for _, tt := range []struct{ page, config string }{
		{"(default :5672)", `amqp: ":5672" `},
		{"(default :15672)", `management: ":15672" `},
		{"(default ./curfew-data)", "dir: ./curfew-data "},
		{"(default info)", "level: info "},
	} {
		if !strings.Contains(page, tt.page) || !strings.Contains(printed, tt.config) {
			t.Errorf("%q and %q do not both appear", tt.page, tt.config)
		}
	}
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestConfigShowsSources(t *testing.T) {
	file := filepath.Join(t.TempDir(), "curfew.yaml")
	writeFile(t, file, "limits:\n  channels: 5\nplugins:\n  ttl: {strategy: rabbitmq}\n")
	t.Setenv("CURFEW_PLUGINS__TTL__MAX", "1h")
	code, stdout, stderr := invoke("config", "--config", file, "--amqp", "127.0.0.1:0", "-data=/tmp/x")
	if code != 0 || stderr != "" {
		t.Fatalf("exit status %d: %s", code, stderr)
	}
	for _, want := range []string{
		`amqp: "127.0.0.1:0"|# flag --amqp`, `management: ":15672"|# default`, "dir: /tmp/x|# flag --data",
		"channels: 5|# file " + file + ":2", "strategy: rabbitmq|# file " + file + ":4", "max: 1h|# env CURFEW_PLUGINS__TTL__MAX",
	} {
		value, source, _ := strings.Cut(want, "|")
		found := false
		for line := range strings.Lines(stdout) {
			found = found || strings.HasPrefix(strings.TrimSpace(line), value+" ") && strings.HasSuffix(line, source+"\n")
		}
		if !found {
			t.Errorf("no line %s … %s in\n%s", value, source, stdout)
		}
	}
}

func TestConfigFileVariable(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir+"/a.yaml", "limits: {channels: 5}\n")
	writeFile(t, dir+"/b.yaml", "limits: {channels: 6}\n")
	t.Setenv("CURFEW_CONFIG", dir+"/a.yaml")
	if _, stdout, stderr := invoke("config"); !strings.Contains(stdout, "channels: 5 ") {
		t.Errorf("CURFEW_CONFIG is not read: %s%s", stdout, stderr)
	}
	if _, stdout, stderr := invoke("config", "--config", dir+"/b.yaml"); !strings.Contains(stdout, "channels: 6 ") {
		t.Errorf("--config does not override CURFEW_CONFIG: %s%s", stdout, stderr)
	}
}

// A rabbitmq.conf used to be reported as an error of YAML. Now the error names the command that prints our configuration, which loads.
func TestConfigFromRabbitMQ(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "rabbitmq.conf", "heartbeat = 30\ndefault_user = anna\ndefault_pass = 's3#c'\nnum_acceptors.tcp = 10\n")
	t.Setenv("CURFEW_CONFIG", "rabbitmq.conf")
	for _, args := range [][]string{{"config", "--config", "rabbitmq.conf"}, {"config"}, {"serve"}, {"healthcheck"}} {
		code, stdout, stderr := invoke(args...)
		if want := ": the configuration has an error:\n  \"rabbitmq.conf\" is in RabbitMQ's format, KEY = VALUE, not YAML; this prints it in Curfew's: curfew config --from rabbitmq.conf (file rabbitmq.conf)\n"; code == 0 || stdout != "" || !strings.HasSuffix(stderr, want) {
			t.Errorf("%v: exit status %d, stderr:\n%s", args, code, stderr)
		}
	}
	code, printed, stderr := invoke("config", "--from", "rabbitmq.conf")
	if want := "curfew config: rabbitmq.conf is translated: keys: 4, lines without a key here: 1 (the comments at the end say why)\n"; code != 0 || stderr != want {
		t.Fatalf("exit status %d, stderr:\n%s", code, stderr)
	}
	writeFile(t, "curfew.yaml", printed)
	code, stdout, stderr := invoke("config", "--config", "curfew.yaml")
	for _, want := range []string{"heartbeat: 30s ", "password: \"***\" ", "vhosts: [\"/\"] "} {
		if code != 0 || stderr != "" || !strings.Contains(stdout, want) {
			t.Errorf("exit status %d, stderr:\n%sno %q in\n%s", code, stderr, want, stdout)
		}
	}
}

func TestConfigFromRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "rabbitmq.conf", "heartbeat = often\nhandshake_timeout = 5000\nheartbaet = 5\n")
	writeFile(t, "curfew.yaml", "limits: {heartbeat: 30s}\n")
	for _, tt := range []struct {
		args           []string
		stdout, stderr string
	}{
		{
			[]string{"config", "--from", "rabbitmq.conf"},
			"handshake-timeout: 5s ",
			"curfew config: rabbitmq.conf is translated: keys: 1, lines without a key here: 0 (the comments at the end say why)\n" +
				"curfew config: these lines were left out:\n" +
				"  heartbeat: \"often\" is not a whole number; accepted: seconds, 0 to 65535 (file rabbitmq.conf:1)\n" +
				"  heartbaet: is not a key of RabbitMQ's; did you mean heartbeat? (file rabbitmq.conf:3)\n",
		},
		{[]string{"config", "--from", "curfew.yaml"}, "", "curfew config: the configuration has an error:\n  \"curfew.yaml\" is no rabbitmq.conf, whose lines are KEY = VALUE (file curfew.yaml)\n"},
		{[]string{"config", "--from", "rabbitmq.conf", "--amqp", ":1"}, "", "curfew config: --from prints what another file says: no flag but --explain goes with it\nRun \"curfew help config\" for help.\n"},
	} {
		code, stdout, stderr := invoke(tt.args...)
		if code != exitUsage || !strings.Contains(stdout, tt.stdout) || stderr != tt.stderr {
			t.Errorf("%v: exit status %d, stdout:\n%sstderr:\n%s", tt.args, code, stdout, stderr)
		}
	}
}

func TestConfigExplains(t *testing.T) {
	_, stdout, _ := invoke("config", "--explain")
	want := "  # Largest message body.\n  # Accepted: 1 to 512MiB\n  # Variable: CURFEW_LIMITS__MESSAGE_SIZE\n  message-size: 16MiB "
	if !strings.Contains(stdout, want) {
		t.Errorf("got\n%s\nwant in it\n%s", stdout, want)
	}
}

// "curfew config" refuses files that "curfew serve" would refuse. It used to accept a configuration whose certificate and module did not
// exist.
func TestConfigReadsFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "x.yaml", "listen: {amqp: off, amqps: '127.0.0.1:0', management: off, management-tls: '127.0.0.1:0'}\n"+
		"tls: {cert: none.pem, key: none.key}\nplugins: {wasm: {modules: {tempo: {path: none.wasm}}}}\n")
	code, stdout, stderr := invoke("config", "--config", "x.yaml")
	want := "curfew config: the configuration has 2 errors:\n" +
		"  tls.cert: open none.pem: no such file or directory\n" +
		"  plugins.wasm.modules.tempo: path: open none.wasm: no such file or directory\n"
	if code != 2 || !strings.Contains(stdout, "cert: none.pem") || stderr != want {
		t.Errorf("exit status %d, got\n%s\nwant\n%s", code, stderr, want)
	}
	for _, missing := range []string{"none.pem", "none.wasm"} {
		if code, _, stderr := invoke("serve", "--config", "x.yaml", "--data", "here"); code == 0 || !strings.Contains(stderr, missing) {
			t.Errorf("serve: exit status %d, and not a word about %s: %s", code, missing, stderr)
		}
		writeFile(t, "x.yaml", "listen: {amqp: '127.0.0.1:0', management: off}\nplugins: {wasm: {modules: {tempo: {path: none.wasm}}}}\n")
	}
}

// Errors of the plugins and the chain are reported with the other errors, with their source.
func TestConfigErrors(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, tt := range []struct {
		name, file string
		args       []string
		stderr     string
	}{
		{
			"one", "",
			[]string{"--amqp", "5672"},
			"curfew config: the configuration has an error:\n" +
				"  listen.amqp: \"5672\" is a port without its colon (:5672?); accepted: host:port, :port for all interfaces, or off (flag --amqp)\n",
		},
		{
			"several", "limits:\n  frame-max: 1\nplugins:\n  ttl:\n    max: 1ns\n  lua: {}\n", nil,
			"curfew config: the configuration has 3 errors:\n" +
				"  limits.frame-max: \"1\" is out of range; accepted: 4KiB to 16MiB (file x.yaml:2)\n" +
				"  plugins.ttl.max: 1ns is out of range; accepted are 0s (no limit) and whole milliseconds from 1ms (file x.yaml:5)\n" +
				"  plugins.lua: unknown plugin; known plugins: ttl, dedup, delay, wasm, maxlength, deadletter, expires, retry, consistenthash, modulushash, random (file x.yaml:6)\n",
		},
		{
			"the chain's", "plugins:\n  ttl:\n    strategy: lazy\n", nil,
			"curfew config: the configuration has an error:\n" +
				"  plugins.ttl.strategy: \"lazy\" is not an expiry strategy, expected one of deadline, rabbitmq, lavinmq, ottermq (file x.yaml:3)\n",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			writeFile(t, "x.yaml", tt.file)
			for _, command := range []string{"config", "serve"} {
				code, stdout, stderr := invoke(append([]string{command, "--config", "x.yaml"}, tt.args...)...)
				want := strings.Replace(tt.stderr, "curfew config:", "curfew "+command+":", 1)
				if code != 2 || stdout != "" || stderr != want {
					t.Errorf("exit status %d, got\n%s%s\nwant\n%s", code, stdout, stderr, want)
				}
			}
		})
	}
}
