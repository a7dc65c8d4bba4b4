// Package crash kills the broker: the real binary, again and again, on the same data directory, while clients publish, consume,
// acknowledge and reject, and messages expire. A ledger of all they did and saw tells what the broker owes them, and whether it
// paid.
package crash

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
