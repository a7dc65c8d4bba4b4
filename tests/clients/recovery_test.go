package clients

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/curfewmq/curfew/core/campaign"
	"github.com/curfewmq/curfew/tests/cluster"
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
func TestCampaignRecovery(t *testing.T) {
	kills := campaign.Size(t, killsVariable, 0, 2)
	c := cluster.New(t, "", t.TempDir())
	urls := c.FixURLs()
	c.StartAll()
	var all []*cluster.Survivor
	for _, l := range libraries {
		dir := t.TempDir() // longer than the part that prepares it
		t.Run(l.name, func(st *testing.T) {
			var program *exec.Cmd
			if l.prepare != nil {
				program = l.prepare(st, dir)
			}
			all = append(all, cluster.StartSurvivor(t, l.name, program, urls))
		})
	}
	cluster.AwaitProgress(t, all...)
	for range kills {
		c.AwaitSpare()
		owner := c.Owner("/")
		for _, s := range all {
			s.Killed()
		}
		owner.Kill()
		cluster.AwaitProgress(t, all...)
		owner.Launch()
		owner.AwaitReady()
	}
	for _, s := range all {
		s.Stop()
	}
	for _, s := range all {
		s.Finish()
	}
}
