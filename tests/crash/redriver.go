package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/curfewmq/curfew/tests/process"
)

// redriver has the dead of a place sent back to where they died, by the management API, until the broker is gone.
func redriver(c *client, management string, p *place) error {
	for {
		var job struct{ ID string }
		err := ask(c, management, http.MethodPost, "queues/%2F/"+url.PathEscape(p.name)+"/redrive", `{"to":"source"}`, &job)
		if errors.Is(err, errAgain) && !c.conn.IsClosed() {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if err != nil {
			return ended(err)
		}
		for running := true; running; {
			var progress struct {
				State  string
				Moved  int
				Reason string
			}
			if err := ask(c, management, http.MethodGet, "redrives/"+job.ID, "", &progress); err != nil {
				return ended(err)
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

// errAgain is an answer of a cluster after which a client asks again. Another redrive of the queue may be running that the clients of an earlier
// life have asked for: the request waited at a node that stood still, or could not be reached, and was carried out when that was over. And the
// vhost may be getting another owner, which the API answers with 503 and one of tryAgain.
var errAgain = errors.New("ask again")

// tryAgain are the codes by which the API says that a node of a cluster cannot answer now.
var tryAgain = []string{"no_owner", "node_unreachable", "interrupted", "stopping"}

// ended returns the error that ends a client: the owner that it asks is going.
func ended(err error) error {
	if errors.Is(err, errAgain) {
		return errGone
	}
	return err
}

// triesAgain reports whether a client of a cluster asks again after an answer.
func triesAgain(status int, text string) bool {
	if status != http.StatusServiceUnavailable {
		return status == http.StatusConflict
	}
	return slices.ContainsFunc(tryAgain, func(code string) bool { return strings.Contains(text, `"error":"`+code+`"`) })
}

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
	if c.ledger.takeover > 0 && triesAgain(status, text) {
		return errAgain
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
