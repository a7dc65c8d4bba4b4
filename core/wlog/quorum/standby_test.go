package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// numbers collects the numbers of entries, and the index of the last.
type numbers struct {
	all []uint64
	at  wlog.Index
}

func (n *numbers) entry(at wlog.Index, entry []byte) error {
	n.all, n.at = append(n.all, binary.LittleEndian.Uint64(entry)), at
	return nil
}

func (n *numbers) want(t *testing.T, from, to uint64) {
	t.Helper()
	got := fmt.Sprint(n.all)
	var want []uint64
	for i := from; i <= to; i++ {
		want = append(want, i)
	}
	if got != fmt.Sprint(want) {
		t.Errorf("got %s, want %d to %d", got, from, to)
	}
	n.all = nil
}

// A node that becomes the owner does not replay again the entries that it has replayed while another node owned the shard.
func TestStandby(t *testing.T) {
	inTrio(t, func(c *trio) {
		t := c.T
		c.owner(0)
		l := c.open(0, 1)
		c.write(l, 1, 50)
		time.Sleep(time.Second)
		two, n := c.nodes[2], &numbers{}
		if got := two.Backlog(0, 0); got < 50*8 || got > 50*64 {
			t.Errorf("%d bytes are behind the beginning", got)
		}
		for _, part := range []struct{ from, to uint64 }{{1, 50}, {51, 60}, {61, 60}} {
			if part.from == 51 {
				c.write(l, 51, 60)
				time.Sleep(time.Second)
			}
			if err := two.Replay(t.Context(), 0, n.at, n.entry); err != nil {
				t.Fatal(err)
			}
			n.want(t, part.from, part.to)
			if got := two.Backlog(0, n.at); got != 0 {
				t.Errorf("%d bytes are behind the last entry", got)
			}
		}
		enough := errors.New("enough")
		if err := two.Replay(t.Context(), 0, 0, func(wlog.Index, []byte) error { return enough }); !errors.Is(err, enough) {
			t.Errorf("got %v, want the error of the caller", err)
		}
		c.write(l, 61, 70)
		c.kill(1)
		two.Gone(1)
		c.nodes[3].Gone(1)
		if _, err := c.nodes[5-c.owner(0)].Resume(t.Context(), 0, n.at, n.entry); !errors.Is(err, wlog.ErrNotOwner) {
			t.Errorf("a node that does not own the shard: got %v", err)
		}
		owned, err := c.nodes[c.owner(0)].Resume(t.Context(), 0, n.at, n.entry)
		if err != nil {
			t.Fatal(err)
		}
		n.want(t, 61, 70)
		c.write(owned, 71, 80)
		owned, err = c.nodes[c.owner(0)].Resume(t.Context(), 0, n.at, n.entry)
		if err != nil {
			t.Fatal(err)
		}
		n.want(t, 71, 80)
		if err := owned.Trim(c.write(owned, 81, 2000)); err != nil {
			t.Fatal(err)
		}
		c.write(owned, 2001, 2010)
		time.Sleep(time.Second)
		e := c.nodes[c.owner(0)]
		if err := e.Replay(t.Context(), 0, n.at, n.entry); !errors.Is(err, wlog.ErrTrimmed) {
			t.Errorf("behind entries that are gone: got %v", err)
		}
		if _, err := e.Resume(t.Context(), 0, n.at, n.entry); !errors.Is(err, wlog.ErrTrimmed) {
			t.Errorf("behind entries that are gone: got %v", err)
		}
		n.want(t, 1, 0)
		if got := e.Backlog(0, 0); got > 20*64 {
			t.Errorf("%d bytes are behind the beginning of a log of ten entries", got)
		}
		if err := e.Replay(t.Context(), 0, 0, n.entry); err != nil {
			t.Fatal(err)
		}
		n.want(t, 2000, 2010)
	})
}
