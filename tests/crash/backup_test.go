package crash

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/core/backup"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
	"github.com/curfewmq/curfew/tests/process"
)

// Each life ends with a backup, of which the next one is made. To the clients that is a broker that was killed when the backup was
// asked for: what was confirmed by then is there, and of what was under way each may be. What the broker does meanwhile with
// others' messages, such as to trim the log, does not matter.
func TestCampaignBackupOneLog(t *testing.T) { newBackups(t, 1).run() }

// With several logs, a backup may have a message that moves in two places, but never in none.
func TestCampaignBackupManyLogs(t *testing.T) { newBackups(t, 3).run() }

// backups is a loop whose lives end with backups.
type backups struct {
	*loop
	made map[string]int // by how
}

func newBackups(t *testing.T, shards int) *backups {
	t.Helper()
	b := &backups{loop: newLoop(t, shards, 4), made: map[string]int{}}
	b.loop.end = b.backUp
	t.Cleanup(func() { t.Logf("backups: %v", b.made) })
	return b
}

// backUp ends a life with a backup.
func (b *backups) backUp() {
	noise, quiet := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		makeNoise(noise, b.broker.URL())
	}()
	defer func() { quiet(); <-done }()
	time.Sleep(time.Duration(b.random.IntN(200)) * time.Millisecond)
	switch n := b.random.IntN(10); {
	case n < 6:
		b.online()
	case n < 7:
		b.abandoned()
		b.online()
	case n < 8:
		b.killed()
	default:
		b.finish()
		b.offline()
	}
}

// makeNoise fills and empties a queue that the ledger knows nothing of, so that the logs are trimmed.
func makeNoise(ctx context.Context, url string) {
	conn, err := process.Dial(url)
	if err != nil {
		return
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return
	}
	const queue = "noise"
	if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		return
	}
	body := make([]byte, 32<<10)
	for n := 0; ctx.Err() == nil; n++ {
		if err := ch.PublishWithContext(ctx, "", queue, false, false, amqp091.Publishing{DeliveryMode: 2, Body: body}); err != nil {
			return
		}
		if n%100 == 0 {
			if _, err := ch.QueuePurge(queue, false); err != nil {
				return
			}
		}
	}
}

// ask begins a backup. When it returns, the backup is as of some instant before.
func (b *backups) ask() io.ReadCloser {
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://"+b.broker.Management+"/api/backup", http.NoBody)
	if err != nil {
		b.Fatal(err)
	}
	r.SetBasicAuth("guest", "guest")
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		b.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(answer.Body) // the status says enough
		b.Fatalf("backup: %s %s", answer.Status, text)
	}
	return answer.Body
}

// next returns the data directory of the next life, which is missing.
func (b *backups) next() string { return fmt.Sprintf("%s.%d", b.dir, b.ledger.life) }

// replace makes a restored data directory the one of the next life.
func (b *backups) replace(dir, how string) {
	if err := os.RemoveAll(b.dir); err != nil {
		b.Fatal(err)
	}
	if err := os.Rename(dir, b.dir); err != nil {
		b.Fatal(err)
	}
	b.made[how]++
}

// online goes on with the backup of a running broker.
func (b *backups) online() {
	b.gate.shut()
	body := b.ask()
	_, _, err := backup.Restore(b.Context(), body, b.next())
	_ = body.Close() // it was read to its end
	if err != nil {
		b.Fatalf("restore: %v", err)
	}
	b.broker.Kill()
	b.replace(b.next(), "online")
}

// abandoned begins a backup, and goes away.
func (b *backups) abandoned() {
	body := b.ask()
	_, _ = io.CopyN(io.Discard, body, b.random.Int64N(1<<20)) // the whole backup may be shorter
	_ = body.Close()
	process.Poll(func() bool { // until the broker knows
		r := b.broker.Ask(b.T, http.StatusOK, http.MethodGet, "backup/status", nil)
		return len(r) > 16 && string(r[:15]) == `{"running":null`
	})
	b.made["abandoned"]++
}

// killed kills the broker in the middle of a backup. What came of it is no backup, unless it is all of it.
func (b *backups) killed() {
	b.gate.shut()
	body := b.ask()
	wait := time.Duration(b.random.IntN(30)) * time.Millisecond
	time.AfterFunc(wait, b.broker.Kill)
	_, _, err := backup.Restore(b.Context(), body, b.next())
	_ = body.Close()
	time.Sleep(wait)
	b.broker.Kill()
	switch {
	case err == nil:
		b.replace(b.next(), "before it was killed")
	case !errors.Is(err, backup.ErrIncomplete):
		b.Fatalf("restore of a part: %v", err)
	default:
		if _, err := os.Stat(b.next()); !errors.Is(err, os.ErrNotExist) {
			b.Fatalf("a part was restored: %v", err)
		}
		b.made["killed"]++
	}
}

// offline goes on with the backup of a data directory.
func (b *backups) offline() {
	archive := filepath.Join(b.TempDir(), "backup")
	f, err := os.Create(archive)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	contents, err := backup.Offline(b.Context(), backup.Manifest{}, b.dir)
	if err != nil {
		b.Fatal(err)
	}
	err = contents.Write(b.Context(), f, func(int64) error { return nil })
	if err := errors.Join(err, contents.Close()); err != nil {
		b.Fatal(err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		b.Fatal(err)
	}
	if _, _, err := backup.Restore(b.Context(), f, b.next()); err != nil {
		b.Fatal(err)
	}
	if reports, err := seg.Verify(b.Context(), vfs.Dir(b.next())); err != nil || len(reports) != b.shards+1 {
		b.Fatalf("verify: %v, of %d logs", err, len(reports))
	}
	b.replace(b.next(), "offline")
}
