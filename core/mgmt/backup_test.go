package mgmt

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/backup"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

func TestBackup(t *testing.T) {
	policies := t.TempDir()
	must(t, os.WriteFile(filepath.Join(policies, "p.policy"), []byte("a policy"), 0o600))
	r := newRig(t, func(o *Options) { o.PolicyFiles = policies })
	r.do(201, "PUT", "/api/queues/%2F/find-me", `{"durable":true}`)
	w := r.serve(r.request(guest, "GET", "/api/backup", ""))
	if kind := w.Header().Get("Content-Type"); w.Code != 200 || kind != "application/x-tar" || !strings.HasPrefix(w.Header().Get("Content-Disposition"), `attachment; filename="curfew-2`) {
		t.Fatalf("got %d, %v", w.Code, w.Header())
	}
	dir := filepath.Join(t.TempDir(), "data")
	m, _, err := backup.Restore(t.Context(), w.Body, dir)
	must(t, err)
	if m.Node != "curfew@test" || m.Version != "1.2.3" || m.Shards != 2 {
		t.Errorf("the manifest is %+v", m)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "policies", "p.policy")); err != nil || string(b) != "a policy" {
		t.Errorf("the policy is %q, %v", b, err)
	}
	var text bytes.Buffer
	must(t, seg.Dump(t.Context(), vfs.Dir(dir), &text, func(w io.Writer, _ wlog.Index, b []byte) error {
		_, err := w.Write(b)
		return err
	}))
	if !strings.Contains(text.String(), "find-me") {
		t.Error("a queue that was declared before is not in the backup")
	}
	var status map[string]map[string]any
	must(t, json.Unmarshal([]byte(strings.Replace(r.do(200, "GET", "/api/backup/status", ""), `,"pinned_bytes":0`, "", 1)), &status))
	if last := status["last"]; status["running"] != nil || last["user"] != "guest" || last["error"] != nil || last["bytes"] != last["of"] || last["bytes"] == 0.0 {
		t.Errorf("the status is %v", status)
	}
	if w := r.serve(r.request(guest, "HEAD", "/api/backup", "")); w.Code != 200 || w.Body.Len() > 0 {
		t.Errorf("HEAD: got %d %s", w.Code, w.Body)
	}
}

// A log that has failed may lack entries that the broker has confirmed, so it is not backed up.
func TestNoBackupOfALogThatFailed(t *testing.T) {
	r := newRig(t)
	r.broken = true
	r.disk.FailNth(crashfs.OpSync, 0)
	r.do(500, "PUT", "/api/queues/%2F/q", `{"durable":true}`)
	if body := r.do(503, "GET", "/api/backup", ""); !strings.HasPrefix(body, `{"error":"log_failed","reason":"no backup can be made: shard 1: log lost`) {
		t.Errorf("got %s", body)
	}
}

// backupBubble is an API with one client, which reads a backup at will.
type backupBubble struct {
	*liveBubble
	answer *http.Response
}

// startBackup asks for a backup and reads the header of the answer, and no more.
func startBackup(t *testing.T) *backupBubble {
	t.Helper()
	b := &backupBubble{liveBubble: newLiveBubble(t)}
	_, err := b.client.Write([]byte("GET /api/backup HTTP/1.1\r\nHost: x\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n\r\n"))
	must(t, err)
	b.answer, err = http.ReadResponse(bufio.NewReader(b.client), nil)
	must(t, err)
	synctest.Wait()
	return b
}

// ask makes another request, without a connection.
func (b *backupBubble) ask(method, path, body string) (status int, answer string) {
	r := &rig{t: b.t, api: b.api}
	w := r.serve(r.request(guest, method, path, body))
	return w.Code, w.Body.String()
}

// lastError returns why the backup before is not complete.
func (b *backupBubble) lastError() string {
	b.t.Helper()
	synctest.Wait()
	var status struct {
		Running *struct{}
		Last    struct{ Error string }
		Pinned  int64 `json:"pinned_bytes"`
	}
	_, body := b.ask("GET", "/api/backup/status", "")
	must(b.t, json.Unmarshal([]byte(body), &status))
	if status.Running != nil || status.Pinned != 0 {
		b.t.Errorf("it goes on: %s", body)
	}
	return status.Last.Error
}

// readAll reads the rest, which has to end too early.
func (b *backupBubble) readAll() {
	b.t.Helper()
	if _, err := io.ReadAll(b.answer.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		b.t.Errorf("the answer ended with %v", err)
	}
}

func TestOneBackupAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBackup(t)
		status, body := b.ask("GET", "/api/backup", "")
		if status != 409 || !strings.Contains(body, `"reason":"a backup is being made since 2000-01-01T00:00:00Z, for user 'guest' from pipe"`) {
			t.Errorf("got %d %s", status, body)
		}
		if _, body := b.ask("GET", "/api/backup/status", ""); !strings.HasPrefix(body, `{"running":{"user":"guest","from":"pipe","began":946684800000,"bytes":`) {
			t.Errorf("the status is %s", body)
		}
		if _, err := backup.Read(b.answer.Body, backup.Check{}); err != nil {
			t.Errorf("the first one: %v", err)
		}
		if why := b.lastError(); why != "" {
			t.Errorf("the first one: %s", why)
		}
		if status, _ := b.ask("GET", "/api/backup", ""); status != 200 {
			t.Errorf("the next one: got %d", status)
		}
	})
}

func TestABackupThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBackup(t)
		time.Sleep(backupPatience - time.Second)
		if status, _ := b.ask("GET", "/api/backup", ""); status != 409 {
			t.Errorf("before its time it has ended: got %d", status)
		}
		time.Sleep(time.Second)
		if why := b.lastError(); !strings.Contains(why, "timeout") {
			t.Errorf("it ended with %q", why)
		}
	})
}

func TestABackupWhoseReaderIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBackup(t)
		must(t, b.client.Close())
		if why := b.lastError(); why == "" {
			t.Error("it ended without an error")
		}
	})
}

func TestABackupEndsWithTheBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBackup(t)
		b.api.EndStreams()
		b.readAll()
		if why := b.lastError(); why != errShutDown.Error() {
			t.Errorf("it ended with %q", why)
		}
	})
}

// A backup goes on for minutes, and has all there is: it ends when its user may not have that any more.
func TestABackupEndsWithItsUsersRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBackup(t)
		if status, body := b.ask("PUT", "/api/users/guest", `{"password":"guest","tags":"monitoring"}`); status >= 300 {
			t.Fatalf("got %d %s", status, body)
		}
		b.readAll()
		synctest.Wait()
		b.api.backups.runs.mu.Lock()
		defer b.api.backups.runs.mu.Unlock()
		if last := b.api.backups.runs.last; last == nil || !errors.Is(last.err, errNoRight) {
			t.Errorf("the last backup is %+v", last)
		}
	})
}

// A backup that holds space which the broker needs ends. One that holds none goes on.
func TestABackupOnAFullDisk(t *testing.T) {
	for name, pinned := range map[string]bool{"that holds space": true, "that holds none": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := startBackup(t)
				for pinned && b.api.Store.PinnedBytes() == 0 { // definitions are written until old ones are trimmed
					if status, body := b.ask("PUT", "/api/global-parameters/p", `{"value":"`+strings.Repeat("x", 60<<10)+`"}`); status >= 300 {
						t.Fatalf("got %d %s", status, body)
					}
					synctest.Wait()
				}
				b.api.Store.SetDiskLimit(1 << 60)
				defer b.api.Store.SetDiskLimit(0)
				if !pinned {
					if _, err := backup.Read(b.answer.Body, backup.Check{}); err != nil {
						t.Error(err)
					}
					return
				}
				b.readAll()
				if why := b.lastError(); why != errNoDisk.Error() {
					t.Errorf("it ended with %q", why)
				}
			})
		})
	}
}
