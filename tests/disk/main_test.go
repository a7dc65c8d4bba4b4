// Package disk fills the disk under the broker: the real binary, on a small file system of its own, with publishers that never
// stop.
package disk

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/tests/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, process.Cleanup()) }
