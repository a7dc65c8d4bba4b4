package clients

import (
	"path/filepath"
	"testing"

	"github.com/curfewmq/curfew/tests/process"
	"github.com/curfewmq/curfew/tests/tools"
)

// A Celery worker holds tasks with a countdown unacknowledged, and raises its prefetch by as many. It does so only where the broker
// announces the product RabbitMQ in version 3.3 or later; elsewhere a few waiting tasks stop it.
func TestCeleryRunsTasksBehindWaitingOnes(t *testing.T) {
	t.Parallel()
	python := tools.Python(t, "celery")
	script, err := filepath.Abs(filepath.Join("testdata", "eta.py"))
	if err != nil {
		t.Fatal(err)
	}
	b := process.Start(t, "")
	for range 2 {
		wantLines(t, run(t, t.TempDir(), "", python, script, b.URL()), "the worker ran", "a task without a countdown ran")
	}
}
