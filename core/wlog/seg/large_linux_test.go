package seg

import (
	"errors"
	"syscall"
	"testing"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
)

func TestEntryTooLarge(t *testing.T) {
	// Addresses without memory: the log may look only at the length.
	entry, err := syscall.Mmap(-1, 0, wlog.MaxEntry+1, syscall.PROT_NONE, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	must(t, err)
	t.Cleanup(func() { must(t, syscall.Munmap(entry)) })
	s := openShard(t, crashfs.New(1), small())
	defer s.close(t)
	if _, err := s.Append(t.Context(), entry, wlog.Bringing); !errors.Is(err, wlog.ErrTooLarge) {
		t.Errorf("got error %v, want %v", err, wlog.ErrTooLarge)
	}
	select {
	case <-s.Lost():
	default:
		t.Error("Lost is not closed")
	}
}
