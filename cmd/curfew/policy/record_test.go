package policy

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
)

// source is a broker with a queue, whose copy gets some messages.
type source struct {
	bindings string
	arrived  map[string][]string // answers to successive fetches of the copy, and of messages that came too late for it
}

var tapName = regexp.MustCompile(`curfew\.record\.\d+\.[0-9a-f]+`)

func (s *source) answer(method, path string) (int, string) {
	queue := strings.TrimPrefix(path, "/api/queues/%2F/")
	switch {
	case queue == "orders/bindings":
		return http.StatusOK, s.bindings
	case queue == "orders":
		return http.StatusOK, `{"type":"quorum","arguments":{"x-message-ttl":9000,"x-queue-type":"quorum"},` +
			`"effective_policy_definition":{"message-ttl":8000,"expiry-strategy":"wasm/tempo","dead-letter-exchange":"dlx"}}`
	case strings.HasSuffix(queue, "/get"):
		kind := strings.TrimSuffix(tapName.ReplaceAllString(queue, "tap"), "/get")
		if len(s.arrived[kind]) == 0 {
			return http.StatusOK, "[]"
		}
		next := s.arrived[kind][0]
		s.arrived[kind] = s.arrived[kind][1:]
		return http.StatusOK, strings.ReplaceAll(next, "TAP", tapName.FindString(queue))
	case method == http.MethodDelete && strings.HasSuffix(queue, ".expired"):
		return http.StatusNotFound, `{"error":"Object Not Found","reason":"Not Found"}`
	}
	return http.StatusCreated, ""
}

func TestRecord(t *testing.T) {
	out := filepath.Join(t.TempDir(), "trace.ndjson")
	args := asMe(t, "record", "--queue", "orders", "--duration", "450ms", "--headers", "eta,absent", "-o", out)
	s := &source{
		bindings: `[{"source":"","routing_key":"orders","arguments":{}},{"source":"e","routing_key":"k","arguments":{"x":1}},{"source":"f","routing_key":"","arguments":{}}]`,
		arrived: map[string][]string{
			"tap": {
				`[{"payload_bytes":5,"exchange":"e","routing_key":"k","payload":"","properties":{"expiration":"700","priority":3,"delivery_mode":2,"headers":{"eta":12,"secret":"x"}}}]`,
				`[{"payload_bytes":6,"exchange":"f","routing_key":"","payload":"","properties":[]}]`,
			},
			"tap.expired": {"[]", `[{"payload_bytes":7,"exchange":"","routing_key":"TAP.expired","payload":"","properties":{"message_id":"i","headers":{"x-death":[
{"queue":"TAP","count":1,"reason":"expired","exchange":"e","routing-keys":["k","cc"],"original-expiration":"3"},{"queue":"other","count":4,"reason":"rejected"}]}}}]`},
		},
	}
	api := &fakeAPI{t: t, answer: s.answer}
	synctest.Test(t, func(t *testing.T) {
		over(t, api, args...).want(t, 0, "", "3 messages recorded\n")
	})
	b, err := os.ReadFile(out)
	want := `{"event":"queue","start":"2000-01-01T00:00:00Z","vhost":"/","name":"orders","type":"quorum","settings":{"dead-letter-exchange":"dlx","message-ttl":8000,"queue-type":"quorum"}}
{"event":"publish","at":200,"id":"m1","expiration":700,"size":5,"priority":3,"persistent":true,"exchange":"e","routing_key":"k","headers":{"eta":12}}
{"event":"publish","at":400,"id":"m2","expiration":3,"size":7,"deaths":4,"exchange":"e","routing_key":"k","message_id":"i"}
{"event":"publish","at":400,"id":"m3","size":6,"exchange":"f"}
`
	if err != nil || string(b) != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, b, want)
	}
	if _, err := readTrace(out); err != nil {
		t.Error(err)
	}
	checkTap(t, api)
}

// checkTap checks how the copy was made and removed.
func checkTap(t *testing.T, api *fakeAPI) {
	t.Helper()
	calls := tapName.ReplaceAllString(strings.ReplaceAll(strings.Join(api.calls, "\n"), "broker:15672/api/", ""), "tap")
	begin := "GET queues/%2F/orders/bindings\nPUT queues/%2F/tap.expired\nPUT queues/%2F/tap\n" +
		"POST bindings/%2F/e/e/q/tap\nPOST bindings/%2F/e/f/q/tap\nGET queues/%2F/orders\nPOST queues/%2F/tap.expired/get\n"
	if !strings.HasPrefix(calls, begin) || !strings.HasSuffix(calls, "\nDELETE queues/%2F/tap\nDELETE queues/%2F/tap.expired") {
		t.Errorf("got\n%s", calls)
	}
	if !strings.Contains(api.bodies[2], `"x-dead-letter-routing-key":"curfew.record.`) || api.bodies[3] != `{"arguments":{"x":1},"routing_key":"k"}` {
		t.Errorf("got %q", api.bodies[2:4])
	}
	if strings.Contains(strings.Join(api.bodies, "\n"), `"truncate":1`) {
		t.Error("bodies are fetched")
	}
}

func TestRecordIsRefused(t *testing.T) {
	s := &source{bindings: `[{"source":"","routing_key":"orders","arguments":{}}]`}
	api := &fakeAPI{t: t, answer: s.answer}
	over(t, api, asMe(t, "record", "--queue", "orders")...).want(t, 1, "",
		"curfew policy record: queue \"orders\" is bound only to the default exchange, whose messages cannot be copied\n")
	api.answer = always(http.StatusNotFound, `{"error":"Object Not Found","reason":"Not Found"}`)
	over(t, api, asMe(t, "record", "--queue", "orders")...).want(t, 1, "", "curfew policy record: queue \"orders\": Not Found\n")
	// everything declared before a failure is removed
	s.bindings = `[{"source":"e","routing_key":"k","arguments":{}}]`
	api.answer = func(method, path string) (int, string) {
		if method == http.MethodPost {
			return http.StatusForbidden, `{"error":"not_authorised","reason":"no"}`
		}
		return s.answer(method, path)
	}
	api.calls = nil
	r := over(t, api, asMe(t, "record", "--queue", "orders")...)
	if r.status != 1 || !strings.Contains(r.stderr, `binding a copy of the queue to exchange "e": `) || !strings.HasPrefix(api.calls[len(api.calls)-1], "DELETE ") {
		t.Errorf("got %+v, %q", r, api.calls)
	}
}
