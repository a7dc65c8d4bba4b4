package mgmt

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
)

// A change whose shard gets another owner meanwhile is answered with 503: ask again. If its entry was being written the answer was 500, as
// for an error of the broker's; for a queue it was 400, as for the client's.
func TestAnswersWhileOwnersChange(t *testing.T) {
	registry := func(err error) error { return fmt.Errorf("users: definitions: registry: %w", err) }
	tests := []struct {
		name string
		err  error
		want *failure
	}{
		{"begun", registry(wlog.ErrNotOwner), errMoved},
		{"no owner", registry(wlog.ErrNoOwner), errMoved},
		{"being written", registry(wlog.ErrLost), errMoved},
		{"not written", registry(wlog.ErrUnwritten), errElsewhere},
		{"not written, and something else was", begun(registry(wlog.ErrUnwritten)), errMoved},
		{"refused by a session, and something else was done", begun(&amqp.Error{Code: amqp.ReplyConnectionForced, Undone: true}), errMoved},
		{"late", registry(context.DeadlineExceeded), errLate},
		{"closed", registry(wlog.ErrClosed), errStopping},
		{"given up", registry(context.Canceled), errStopping},
		{"refused by a session", &amqp.Error{Code: amqp.ReplyConnectionForced, Undone: true}, errElsewhere},
		{"interrupted", amqp.Errorf(amqp.ReplyConnectionForced, "bye"), &failure{503, "interrupted", "bye; whether it was done is not known"}},
		{"interrupted, as its text says", amqp.Errorf(amqp.ReplyConnectionForced, "whether it came is not known"), &failure{503, "interrupted", "whether it came is not known"}},
		{"refused by a vhost", &vhost.Error{Kind: vhost.Stopped}, &failure{500, "internal_error", ""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if f := failureOf(tt.err); f == nil || *f != *tt.want {
				t.Errorf("got %+v, want %+v", f, tt.want)
			}
		})
	}
}

// A request to show, change or delete a queue while its vhost moves was answered with 400 or 404. Clients took the first for a refusal and
// the second for an answer.
func TestQueueOfAVHostThatMoves(t *testing.T) {
	for _, tt := range []struct{ method, path, body string }{
		{"GET", "queues/%2F/q", ""},
		{"GET", "queues/%2F/none", ""},
		{"PUT", "queues/%2F/q", `{"durable": true}`},
		{"PUT", "queues/%2F/new", `{"durable": true}`},
		{"DELETE", "queues/%2F/q", ""},
		{"DELETE", "queues/%2F/none", ""},
		{"DELETE", "queues/%2F/q/contents", ""},
		{"POST", "queues/%2F/q/get", `{"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}`},
		{"POST", "exchanges/%2F/amq.default/publish", `{"properties": {}, "routing_key": "q", "payload": "", "payload_encoding": "string"}`},
		{"PUT", "exchanges/%2F/x", `{"type": "fanout"}`},
		{"DELETE", "exchanges/%2F/none", ""},
		{"POST", "bindings/%2F/e/amq.fanout/q/q", `{}`},
		{"PUT", "policies/%2F/p", `{"pattern": "q", "definition": {"max-length": 1}}`},
	} {
		t.Run(tt.method+" "+tt.path, func(t *testing.T) {
			r := newRig(t)
			r.api.EndStreams() // so that no request waits for a new owner, which there will not be
			r.do(201, "PUT", "/api/queues/%2F/q", `{"durable": true}`)
			v, _ := r.api.Store.VHost("/")
			v.Move("it moves")
			w := r.serve(r.request(guest, tt.method, "/api/"+tt.path, tt.body))
			if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), `"error":"no_owner"`) {
				t.Errorf("%d %s", w.Code, w.Body.String())
			}
		})
	}
}
