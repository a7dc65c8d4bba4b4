package cluster

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/tests/process"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "4") // the default, which -parallel overrides: clusters wait more than they compute
	goleak.VerifyTestMain(m, process.Cleanup())
}
