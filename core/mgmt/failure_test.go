package mgmt

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/curfewmq/curfew/core/wlog"
)

// A change that is under way when its shard gets another owner is answered with 503: ask again. One whose entry was being written was answered
// with 500, as an error of the broker's, and logged as such.
func TestAnswersWhileOwnersChange(t *testing.T) {
	for _, err := range []error{wlog.ErrNotOwner, wlog.ErrNoOwner, wlog.ErrLost} {
		f := failureOf(fmt.Errorf("users: definitions: registry: %w", err))
		if f == nil || f.status != http.StatusServiceUnavailable || f.code != "no_owner" {
			t.Errorf("%v: %+v", err, f)
		}
	}
}
