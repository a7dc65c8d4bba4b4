package management

import (
	"strings"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// The tool's watermarks block a real broker's publishers at once, and let them go.
func TestWatermarks(t *testing.T) {
	t.Parallel()
	b := curfew(t)
	conn, err := b.connect("guest", "guest", "/")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	blocked := conn.NotifyBlocked(make(chan amqp091.Blocking, 10))
	for _, tt := range []struct{ full, reason, enough, status string }{
		{"set_vm_memory_high_watermark 0", "low on memory", "set_vm_memory_high_watermark 1", "Memory high watermark: "},
		{"set_vm_memory_high_watermark absolute 0kB", "low on memory", "set_vm_memory_high_watermark absolute 1000GB", "Memory high watermark: 1000.0000 gb"},
		{"set_disk_free_limit 1000000GB", "low on disk", "set_disk_free_limit 7GB", "Low free disk space watermark: 7.0000 gb"},
	} {
		b.ctl(t, strings.Fields(tt.full)...)
		if err := ch.PublishWithContext(t.Context(), "", "nowhere", false, false, amqp091.Publishing{}); err != nil {
			t.Fatal(err)
		}
		if got, open, _ := process.Receive(blocked); !open || !got.Active || got.Reason != tt.reason {
			t.Fatalf("%s: got %+v", tt.full, got)
		}
		b.ctl(t, strings.Fields(tt.enough)...)
		if got, open, _ := process.Receive(blocked); !open || got.Active {
			t.Fatalf("%s: got %+v", tt.enough, got)
		}
		if got := b.ctl(t, "status"); !strings.Contains(got, tt.status) {
			t.Errorf("%s: no %q in\n%s", tt.enough, tt.status, got)
		}
	}
	if status, _, stderr := b.tool(t, "", "set_disk_free_limit", "1T"); status != 65 || !strings.Contains(stderr, "M, MB, MiB, G, GB or GiB") {
		t.Errorf("exit status %d: %s", status, stderr)
	}
}
