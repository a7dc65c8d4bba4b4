// Package backup follows the page about backups, command by command, with the real binary. What is not ours there, such as systemctl
// and docker, is stood in for by scripts that do the part of it which matters.
package backup

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/tests/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, process.Cleanup()) }
