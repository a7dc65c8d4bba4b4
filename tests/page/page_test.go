// Package page looks at the management page with a real browser: Chromium, driven from Node.js by playwright-core, with axe-core to
// find what people with disabilities could not use. What happens in the browser is in testdata/node, a file for each test; here are the
// broker, and what a browser cannot do.
package page

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/tests/cluster"
	"github.com/curfewmq/curfew/tests/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, process.Cleanup()) }

func TestAFreshBrokerHasAPage(t *testing.T) { scenario(t, "01-first-sight", start(t), nil) }

func TestNamesAreText(t *testing.T) {
	b := start(t)
	scenario(t, "02-hostile-names", b, clients(t, b))
}

func TestLoginAndLogout(t *testing.T) { scenario(t, "03-login", start(t), nil) }

func TestExpiriesAreSeen(t *testing.T) { scenario(t, "04-expiry", start(t), nil) }

func TestTenThousandQueues(t *testing.T) { scenario(t, "05-many-queues", start(t), nil) }

func TestAHiddenTabHasNoStream(t *testing.T) { scenario(t, "06-hidden-tab", start(t), nil) }

func TestEverybodyCanUseThePage(t *testing.T) {
	b := start(t)
	scenario(t, "07-everybody", b, clients(t, b))
}

func TestAPeekChangesNothing(t *testing.T) { scenario(t, "08-peek", start(t), nil) }

func TestABrokerThatIsGoneComesBack(t *testing.T) {
	b := start(t)
	data := filepath.Join(b.Dir, "curfew-data")
	scenario(t, "09-broker-gone", b, map[string]func(){
		"kill":  b.Kill,
		"start": func() { process.Start(t, "", "--amqp", b.AMQP, "--management", b.Management, "--data", data) },
	})
}

func TestABrokerThatHangsGoesOn(t *testing.T) {
	b := start(t)
	scenario(t, "12-broker-hangs", b, map[string]func(){
		"hang":  func() { b.Signal(syscall.SIGSTOP) },
		"go on": func() { b.Signal(syscall.SIGCONT) },
	})
}

func TestAClusterIsSeen(t *testing.T) {
	tool(t, "node")
	t.Parallel()
	c := cluster.Start(t, "")
	b := c.Nodes[0]
	scenario(t, "15-cluster", b.Process, map[string]func(){"kill one": c.Nodes[1].Kill, "kill another": c.Nodes[2].Kill})
}

func TestUpdatesLoseNothing(t *testing.T) { scenario(t, "14-updates", start(t), nil) }

func TestHostileValues(t *testing.T) { scenario(t, "13-hostile-values", start(t), nil) }

func TestWhatIsLostDoesNotArrive(t *testing.T) { scenario(t, "16-flow", start(t), nil) }

func TestNothingIsTakenFromWhoUsesThePage(t *testing.T) { scenario(t, "17-in-use", start(t), nil) }

func TestNamesAreToldApartAndBindingsHavePages(t *testing.T) {
	scenario(t, "18-names-and-pages", start(t), nil)
}

func TestManyCostLittle(t *testing.T) { scenario(t, "19-many", start(t), nil) }

func TestANewModuleIsComparedAndActivated(t *testing.T) { scenario(t, "10-shadow", start(t), nil) }

func TestANewUserIsToldWhatIsMissing(t *testing.T) { scenario(t, "11-new-user", start(t), nil) }

// Pictures are for people: SHOTS names the folder that they go to.
func TestPictures(t *testing.T) {
	if os.Getenv("SHOTS") == "" {
		t.Skip("SHOTS names no folder for pictures: make page-shots")
	}
	b := start(t)
	does := clients(t, b)
	does["storm"] = func() { storm(t, b) }
	does["kill"] = b.Kill
	scenario(t, "shots", b, does)
}

// start runs a broker, if there is a browser for it. Scenarios wait more than they work: some run at once, each with a broker and a browser.
func start(t *testing.T) *process.Process {
	t.Helper()
	tool(t, "node")
	t.Parallel()
	return process.Start(t, "")
}
