package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/curfewmq/curfew/tests/process"
)

// redriver has the dead of a place sent back to where they died, by the management API, until the broker is gone.
func redriver(c *client, management string, p *place) error {
	for {
		var job struct{ ID string }
		err := ask(c, management, http.MethodPost, "queues/%2F/"+url.PathEscape(p.name)+"/redrive", `{"to":"source"}`, &job)
		if errors.Is(err, errConflict) && !c.conn.IsClosed() {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if err != nil {
			return err
		}
		for running := true; running; {
			var progress struct {
				State  string
				Moved  int
				Reason string
			}
			if err := ask(c, management, http.MethodGet, "redrives/"+job.ID, "", &progress); err != nil {
				return err
			}
			if running = progress.State == "running"; running {
				if c.conn.IsClosed() {
					return errGone
				}
				time.Sleep(time.Millisecond)
				continue
			}
			if progress.State != "done" && !c.ledger.isEnding() {
				c.ledger.complain("redrive %s: %+v", job.ID, progress)
			}
			c.ledger.mu.Lock()
			c.ledger.counts.redriven += progress.Moved
			c.ledger.mu.Unlock()
		}
		time.Sleep(time.Duration(c.random.IntN(40)) * time.Millisecond)
	}
}

// redrivesAt returns what a broker says of its redrives, the latest ones first.
func redrivesAt(management string) string {
	r, err := http.NewRequest(http.MethodGet, "http://"+management+"/api/redrives?sort=started_at&sort_reverse=true&page=1&page_size=3", nil)
	if err != nil {
		return err.Error()
	}
	r.SetBasicAuth("guest", "guest")
	status, text, err := process.Do(r)
	return fmt.Sprintf("%d %s %v", status, text, err)
}

// errConflict is that another redrive of the queue is running. A cluster may have one that the clients of an earlier life have asked for: the
// request waited at a node that stood still, or could not be reached, and was carried out when that was over.
var errConflict = errors.New("a redrive is running")

// ask asks the management API. It returns errGone with the broker, and complains of any other answer than that it did as told.
func ask(c *client, management, method, path, body string, into any) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c.gate.enter(cancel) // a node that stands still never answers
	r, err := http.NewRequestWithContext(ctx, method, "http://"+management+"/api/"+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.SetBasicAuth("guest", "guest")
	status, text, err := process.Do(r)
	if err != nil {
		return errGone
	}
	if status == http.StatusConflict && c.ledger.takeover > 0 {
		return errConflict
	}
	if status >= http.StatusBadRequest {
		if full := status == http.StatusServiceUnavailable && strings.Contains(text, "resource_alarm") && c.ledger.fills; !full && !c.ledger.isEnding() {
			if status == http.StatusConflict { // what runs is there to be read
				text += ", with " + redrivesAt(management)
			}
			c.ledger.complain("%s %s: %d %s", method, path, status, text)
		}
		return errGone
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return fmt.Errorf("%s %s: %q: %w", method, path, text, err)
	}
	return nil
}
