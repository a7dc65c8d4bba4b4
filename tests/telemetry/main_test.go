// Package telemetry tests what can be seen of the broker from outside while it works: the real binary sends spans to a collector
// that the tests play, while client libraries use it.
package telemetry

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/tests/process"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "4") // the default, which -parallel overrides: these tests wait more than they compute
	for name, value := range map[string]string{
		"OTEL_BSP_SCHEDULE_DELAY":    "20", // milliseconds; users have five seconds
		"OTEL_EXPORTER_OTLP_HEADERS": "X-Tenant=a%20b",
		"OTEL_RESOURCE_ATTRIBUTES":   "deployment.environment.name=test",
	} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m, process.Cleanup())
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
