// Package broker tests the whole broker: the real binary in a process of its own, real clients, and peers that mean it harm.
package broker

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/tests/process"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // the default, which -parallel overrides: these tests wait more than they compute
	goleak.VerifyTestMain(m, process.Cleanup())
}
