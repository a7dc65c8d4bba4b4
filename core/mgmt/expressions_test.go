package mgmt

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/mgmt/pattern"
	"github.com/curfewmq/curfew/core/telemetry"
)

// Any user with the tag management kept a processor busy with a list, a live view, or events. Administrators did so with permissions.
func TestCostlyExpressionsAreRefused(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Events = telemetry.New(telemetry.Options{Events: 10, Clock: o.Clock}).Events() })
	costly := strings.Repeat(".{0,999}", 3)
	for _, tt := range []struct{ method, path, body string }{
		{"GET", "/api/queues?page=1&use_regex=true&name=" + url.QueryEscape(costly), ""},
		{"GET", "/api/vhosts?page=1&use_regex=true&name=" + url.QueryEscape(costly), ""},
		{"GET", "/api/live?view=queues&use_regex=true&name=" + url.QueryEscape(costly), ""},
		{"GET", "/api/live?view=deadlines&queue=" + url.QueryEscape("/"+costly), ""},
		{"GET", "/api/events?history=10&queue_regex=" + url.QueryEscape(costly), ""},
		{"PUT", "/api/permissions/%2F/guest", `{"configure":"` + costly + `","write":"","read":""}`},
		{"PUT", "/api/topic-permissions/%2F/guest", `{"exchange":"amq.topic","write":"` + costly + `","read":""}`},
		{"PUT", "/api/topic-permissions/%2F/guest", `{"exchange":"amq.topic","write":"({username}){0,999}","read":""}`},
		{"POST", "/api/definitions", `{"permissions":[{"user":"guest","vhost":"/","configure":"` + costly + `","write":"","read":""}]}`},
		{"PUT", "/api/policies/%2F/p", `{"pattern":"` + costly + `","definition":{"expires":1000}}`},
	} {
		if got := r.do(400, tt.method, tt.path, tt.body); !strings.Contains(got, "steps, more than 2000") {
			t.Errorf("%s %.60s: got %s", tt.method, tt.path, got)
		}
	}
	if got := r.do(400, "GET", "/api/queues?page=1&use_regex=true&name="+url.QueryEscape("^(?!x)"), ""); !strings.Contains(got, "name: lookahead") {
		t.Errorf("an expression of another language: got %s", got)
	}
}

// A list went on to compare its names after the client had left.
func TestTheExpressionEndsWithTheRequest(t *testing.T) {
	r := newRig(t)
	r.do(201, "PUT", "/api/queues/%2F/q", `{}`)
	q := r.request(guest, "GET", "/api/queues?page=1&use_regex=true&name="+url.QueryEscape("^q"), "")
	ctx, leave := context.WithCancel(q.Context())
	leave()
	if got := r.serve(q.WithContext(ctx)).Body.String(); !strings.Contains(got, pattern.ErrGone.Error()) {
		t.Errorf("got %s", got)
	}
}
