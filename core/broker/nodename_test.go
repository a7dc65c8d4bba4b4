package broker

import (
	"testing"

	"github.com/curfewmq/curfew/core/config"
)

func TestNodeName(t *testing.T) {
	for _, tt := range []struct{ configured, want string }{
		{"", "curfew@" + hostName()}, {"rabbit", "rabbit@" + hostName()}, {"rabbit@db1.example", "rabbit@db1.example"},
	} {
		c := &config.Config{Node: config.Node{Name: tt.configured}}
		if got := NodeName(c); got != tt.want {
			t.Errorf("node.name %q: got %s, want %s", tt.configured, got, tt.want)
		}
	}
}
