package cluster

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// Once all nodes read a later format of logs, a node that does not is disconnected, refused with the reason, and does not start on its own
// data. That still holds after all nodes were restarted.
func TestEarlierVersionIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms := newMachines(t, 11)
		a, b, c := ms.all[0], ms.all[1], ms.all[2]
		reads := func(format uint32) func(*Options) {
			return func(o *Options) { o.Format, o.Version = format, "2" }
		}
		a.change, b.change = reads(2), reads(2) // c reads 1
		ms.begin()
		time.Sleep(5 * time.Second)
		if got := a.node.Formats(); got[a.identity().Number] != 2 || got[b.identity().Number] != 2 || got[c.identity().Number] != 1 {
			t.Errorf("node a thinks that they read %v", got)
		}
		if got := a.node.Writes(); got != FirstFormat {
			t.Errorf("format %d is written before anybody said that all read it", got)
		}
		if err := c.node.SetFormat(2); err == nil || err.Error() != "format 2 of logs: this version reads 1 to 1" {
			t.Errorf("a format that the node does not read: %v", err)
		}
		if err := a.node.SetFormat(2); err != nil { // as if c had been downgraded meanwhile
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		a.wantLog("it reads logs of format 1, and this cluster writes format 2: start version 2 or a later one there")
		for _, l := range a.node.Status().Links {
			if reads := l.Format.To; l.Connected != (reads == 2) {
				t.Errorf("node at %s, which reads %v: connected %v", l.Node.Address, l.Format, l.Connected)
			}
		}
		ms.stop()
		a.change = nil
		a.boot()
		<-a.opened
		if err := a.err; !errors.Is(err, wlog.ErrNewer) || !strings.Contains(err.Error(), "writes logs of format 2, and version 1 reads up to 1") {
			t.Errorf("an earlier version on data of a later format: %v", err)
		}
		a.change = reads(2)
		for _, m := range ms.all {
			m.boot()
		}
		<-a.opened
		if got := a.node.Writes(); got != 2 {
			t.Errorf("format %d is written after a restart", got)
		}
		time.Sleep(5 * time.Second)
		c.wantLog("it reads logs of format 1, and this cluster writes format 2: start version 2 or a later one there")
		ms.stop()
	})
}
