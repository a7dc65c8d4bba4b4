package wlog_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/wlog"
)

// Numbers of nodes have 64 bits, and readers of JSON lose some of them.
func TestNodeIDsAreTextsInLogs(t *testing.T) {
	var b bytes.Buffer
	slog.New(slog.NewJSONHandler(&b, nil)).Info("node", "node", wlog.NodeID(15_123_456_789_012_345_678))
	if want := `"node":"15123456789012345678"`; !strings.Contains(b.String(), want) {
		t.Errorf("got %s, want %s", b.String(), want)
	}
}
