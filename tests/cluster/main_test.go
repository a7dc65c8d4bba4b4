package cluster

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/tests/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, process.Cleanup()) }
