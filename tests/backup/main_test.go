// Package backup follows the page about backups, command by command, with the real binary. What is not ours there, such as systemctl
// and docker, is stood in for by scripts that do the part of it which matters.
package backup

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/tests/process"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "4") // the default, which -parallel overrides: these tests wait more than they compute
	goleak.VerifyTestMain(m, process.Cleanup())
}
