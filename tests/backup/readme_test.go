package backup

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
	"github.com/curfewmq/curfew/tests/tools"
)

// standIns are the programs of the page that are not ours. $T is the machine's root.
var standIns = map[string]string{
	"systemctl": `case $1 in
stop) kill $(cat $T/pid) 2>>$T/log; while kill -0 $(cat $T/pid) 2>>$T/log; do sleep 0.05; done ;;
start) setsid curfew serve --config $T/curfew.yaml >>$T/log 2>&1 & echo $! >$T/pid; curfew ctl await_startup ;;
esac`,
	"sudo": `[ "$1" != -u ] || shift 2
if [ "$1" = install ]; then exec install --directory --mode 0750 "$8"; fi
exec "$@"`,
	"apt-get": `systemctl stop curfew; systemctl start curfew`,
	"docker": `case "$*" in
exec*) shift 2; exec "$@" ;;
*restore*) exec curfew restore - --data $T/volume ;;
stop*) systemctl stop curfew ;;
run*) systemctl start curfew ;;
esac`,
	"scp":         `test -f "$1"`,
	"rabbitmqctl": `cp $ROOT/tests/management/testdata/rabbitmq-3.10.json "$2"`,
}

// machine is where the page is followed.
type machine struct {
	*testing.T
	root string
	env  []string
	text *strings.Replacer
	amqp string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{T: t, root: t.TempDir()}
	ports := freePorts(t, 4)
	m.amqp = "amqp://guest:guest@127.0.0.1:" + ports[0]
	m.text = strings.NewReplacer("/var/", m.root+"/var/", "15673", ports[3], "5673", ports[2])
	bin := filepath.Join(m.root, "bin")
	for _, dir := range []string{bin, filepath.Join(m.root, "var/lib"), filepath.Join(m.root, "var/backups"), filepath.Join(m.root, "work")} {
		m.must(os.MkdirAll(dir, 0o755))
	}
	m.must(os.Symlink(process.Binary(t), filepath.Join(bin, "curfew")))
	for name, script := range standIns {
		m.must(os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	configuration := fmt.Sprintf("listen: {amqp: 127.0.0.1:%s, management: 127.0.0.1:%s}\ndata: {dir: %s/var/lib/curfew}\n", ports[0], ports[1], m.root)
	m.must(os.WriteFile(filepath.Join(m.root, "curfew.yaml"), []byte(configuration), 0o600))
	root, err := filepath.Abs(process.Root(t))
	m.must(err)
	m.env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "T="+m.root, "ROOT="+root, "CURFEW_CTL_URL=http://127.0.0.1:"+ports[1])
	m.run("systemctl start curfew")
	t.Cleanup(func() { m.run("systemctl stop curfew") })
	return m
}

// freePorts returns ports of this machine that nobody listens on.
func freePorts(t *testing.T, n int) (ports []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, port)
	}
	return ports
}

func (m *machine) must(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

// run runs a script, which must succeed, and returns what it prints.
func (m *machine) run(script string) string {
	m.Helper()
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", m.text.Replace(script))
	cmd.Dir, cmd.Env = filepath.Join(m.root, "work"), m.env
	cmd.WaitDelay = 10 * time.Second // a broker that it started may have its output
	out, err := cmd.CombinedOutput()
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(m.root, "log")) // there may be none
		m.Fatalf("%s\n%v\n%s\nthe broker's log: %s", script, err, out, log)
	}
	return string(out)
}

// publish publishes persistent messages to a durable queue.
func (m *machine) publish(queue string, n int) {
	m.Helper()
	conn, err := process.Dial(m.amqp)
	m.must(err)
	defer conn.Close()
	ch, err := conn.Channel()
	m.must(err)
	m.must(ch.Confirm(false))
	_, err = ch.QueueDeclare(queue, true, false, false, false, nil)
	m.must(err)
	for range n {
		c, err := ch.PublishWithDeferredConfirm("", queue, true, false, amqp091.Publishing{DeliveryMode: 2, Body: []byte("find me")})
		m.must(err)
		if !c.Wait() {
			m.Fatal("a message was refused")
		}
	}
}

// block matches a block of the page.
var block = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

func TestThePageAboutBackups(t *testing.T) {
	t.Parallel()
	tools.Need(t, "bash")
	page, err := os.ReadFile(filepath.Join(process.Root(t), "cmd/curfew/backup/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t)
	m.publish("orders", 3)
	m.must(os.WriteFile(filepath.Join(m.root, "work", "rabbitmq.conf"), []byte("vm_memory_high_watermark.absolute = 2GB\n"), 0o600))
	var printed strings.Builder
	for _, b := range block.FindAllStringSubmatch(string(page), -1) {
		switch b[1] {
		case "sh":
			printed.WriteString(m.run(b[2]))
			m.run("curfew ctl --quiet ping || systemctl start curfew") // what was moved goes on in the test
		case "cron":
			m.followCron(b[2])
		default:
			t.Errorf("a block of the page is %s, which nobody runs", b[1])
		}
	}
	for _, want := range []string{
		": backup of curfew@", `"error":null`, "drill: restored from ", "shard 1: 1 segments, 5 entries, ", "orders\t3\n", "Successfully imported definitions.",
	} {
		if !strings.Contains(printed.String(), want) {
			t.Errorf("the page printed no %q:\n%s", want, &printed)
		}
	}
	if got := m.run("curfew config --config curfew.yaml"); !strings.Contains(got, "2000000000") && !strings.Contains(got, "2GB") {
		t.Errorf("what was translated says:\n%s", got)
	}
	if got := m.run("curfew ctl --quiet list_queues | grep orders"); got != "orders\t3\n" {
		t.Errorf("in the end the queue is %q", got)
	}
}

// followCron runs the command of a crontab, as cron would.
func (m *machine) followCron(table string) {
	m.Helper()
	var script strings.Builder
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.Contains(fields[0], "="):
			script.WriteString("export " + line)
		default:
			_, command, _ := strings.Cut(line, " root ")
			script.WriteString(strings.ReplaceAll(command, `\%`, "%"))
		}
	}
	m.run(script.String())
	m.run("curfew restore /var/backups/curfew-$(date +%a).tar.gz --data of-cron && curfew log verify of-cron")
}
