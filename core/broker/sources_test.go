package broker

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/sdk/hook"
)

// The file is written a minute after an address is new, and not again without a new one.
func TestSourcesAreWrittenSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, sourcesFile)
		users := auth.New(auth.Options{Hashing: auth.SHA512})
		if err := users.CreateDefaults(); err != nil {
			t.Fatal(err)
		}
		logIn := func(host string) {
			t.Helper()
			if _, err := users.Authenticate(t.Context(), "guest", "guest", auth.Origin{Host: host, Loopback: true, Now: hook.Instant(1)}); err != nil {
				t.Fatal(err)
			}
		}
		var full atomic.Pointer[chan struct{}]
		space := func() <-chan struct{} {
			if ended := full.Load(); ended != nil {
				return *ended
			}
			return nil
		}
		k := keepSources(dir, users, space, slog.New(slog.DiscardHandler))
		written := func() []byte {
			b, _ := os.ReadFile(path)
			return b
		}
		after := func(d time.Duration) []byte {
			time.Sleep(d)
			synctest.Wait()
			return written()
		}
		logIn("192.0.2.1")
		if after(sourcesInterval-time.Second) != nil {
			t.Error("it is written before a minute")
		}
		if b := after(time.Second); !bytes.Equal(b, users.EncodeSources()) {
			t.Errorf("after a minute there are %d bytes", len(b))
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("others may read it: %v, %v", info.Mode(), err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		logIn("192.0.2.1")
		if after(time.Hour) != nil {
			t.Error("it is written although no address is new")
		}
		logIn("192.0.2.2")
		full.Store(new(make(chan struct{})))
		if after(time.Hour) != nil {
			t.Error("it is written although the disk is full")
		}
		full.Store(nil)
		k.end()
		if !bytes.Equal(written(), users.EncodeSources()) {
			t.Error("it is not written at the end")
		}
	})
}
