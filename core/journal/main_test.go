package journal

import (
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // disks are in memory
	goleak.VerifyTestMain(m)
}
