package mgmt

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}

// A user without any permission had the broker decode 28 MiB.
func TestBodiesOfUsersWithoutPermissionAreNotRead(t *testing.T) {
	r := newRig(t)
	r.do(201, "PUT", "/api/users/nobody", `{"password":"p","tags":"management"}`)
	r.do(201, "PUT", "/api/users/reader", `{"password":"p","tags":"management"}`)
	r.do(201, "PUT", "/api/permissions/%2F/reader", `{"configure":"","write":"^other$","read":".*"}`)
	for _, tt := range []struct {
		user, method, path string
		status             int
	}{
		{"nobody:p", "POST", "/api/exchanges/%2F/amq.default/publish", 401},
		{"nobody:p", "POST", "/api/queues/%2F/q/get", 401},
		{"nobody:p", "PUT", "/api/queues/%2F/q", 401},
		{"nobody:p", "PUT", "/api/exchanges/%2F/x", 401},
		{"nobody:p", "POST", "/api/bindings/%2F/e/x/q/q", 401},
		{"reader:p", "POST", "/api/exchanges/%2F/amq.topic/publish", 400},
	} {
		q := r.request(tt.user, tt.method, tt.path, "")
		q.Body, q.ContentLength = io.NopCloser(unread{t}), 28<<20
		if w := r.serve(q); w.Code != tt.status {
			t.Errorf("%s %s by %s: got %d %s, want %d", tt.method, tt.path, tt.user, w.Code, w.Body, tt.status)
		}
	}
}

// JSON took ninety times its size in memory.
func TestMemoryOfJSON(t *testing.T) {
	r := newRig(t, func(o *Options) { o.BodyMax = 64 << 20 })
	elements := func(size int) string { return strings.TrimSuffix(strings.Repeat(`{"":1},`, size/7), ",") }
	message := func(headers string) string {
		return `{"properties":{"headers":{"a":[` + headers + `]}},"routing_key":"","payload":"","payload_encoding":"string"}`
	}
	for _, tt := range []struct{ method, path, body string }{
		{"POST", "/api/exchanges/%2F/amq.default/publish", message(elements(8 << 20))},
		{"POST", "/api/exchanges/%2F/amq.default/publish", message(strings.Repeat("[],", 1<<20) + "1")},
		{"POST", "/api/exchanges/%2F/amq.default/publish", message(strings.Repeat(`"",`, 1<<20) + "1")},
		{"PUT", "/api/queues/%2F/q", `{"arguments":{"a":[` + elements(1<<20-100) + `]}}`},
		{"PUT", "/api/parameters/federation/%2F/p", `{"value":{"a":[` + elements(1<<20-100) + `]}}`},
		{"PUT", "/api/global-parameters/p", `{"value":[` + elements(1<<20-100) + `]}`},
		{"PUT", "/api/users/u", `{"password":"p","tags":[` + strings.Repeat(`"a",`, 200_000) + `"b"]}`},
		{"POST", "/api/bindings/%2F/e/amq.topic/e/amq.fanout", `{"arguments":{"a":[` + elements(1<<20-100) + `]}}`},
		{"POST", "/api/simulations", `{"message":{"properties":{"headers":{"a":[` + elements(8<<20) + `]}}}}`},
		{"POST", "/api/definitions", `{"queues":[` + elements(32<<20) + `]}`},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got := r.do(400, tt.method, tt.path, tt.body)
		runtime.ReadMemStats(&after)
		if !strings.Contains(got, "values") {
			t.Errorf("%s %s: got %s", tt.method, tt.path, got)
		}
		if took := (after.TotalAlloc - before.TotalAlloc) / uint64(len(tt.body)); took > 10 {
			t.Errorf("%s %s: a body of %d bytes took %d times its size", tt.method, tt.path, len(tt.body), took)
		}
	}
}

// 400 queues with arguments of 126 KiB took 842 MiB.
func TestArgumentsOfManyFieldsAreRefused(t *testing.T) {
	r := newRig(t)
	many := `{"arguments":{"x":[` + strings.Repeat("null,", 1030) + `null]}}`
	for _, tt := range []struct{ method, path, body string }{
		{"PUT", "/api/queues/%2F/q", many},
		{"PUT", "/api/exchanges/%2F/x", `{"type":"topic",` + many[1:]},
		{"POST", "/api/bindings/%2F/e/amq.topic/e/amq.fanout", many},
		{"POST", "/api/definitions", `{"queues":[{"name":"q","vhost":"/",` + many[1:] + `]}`},
	} {
		if got := r.do(400, tt.method, tt.path, tt.body); !strings.Contains(got, "fields and elements: at most 1024 are allowed") {
			t.Errorf("%s %s: got %s", tt.method, tt.path, got)
		}
	}
}

// Ten thousand times as many tags as a user may have took minutes.
func TestManyTags(t *testing.T) {
	r := newRig(t)
	var b strings.Builder
	for i := range 60_000 {
		b.WriteString(",t" + string(rune('a'+i%26)) + strings.Repeat("x", i%9) + string(rune(0x4e00+i%20000)))
	}
	if got := r.do(400, "PUT", "/api/users/u", `{"password":"p","tags":"`+b.String()[1:]+`"}`); !strings.Contains(got, "at most 64 are allowed") {
		t.Errorf("got %s", got)
	}
}

func TestBodyMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newBodyMemory()
		m.most, m.ofUser, m.wait = 100<<20, 50<<20, time.Second
		take := func(user string, mib int64) string {
			f, _ := errors.AsType[*failure](m.take(t.Context(), user, mib<<20))
			if f == nil {
				return ""
			}
			return f.code
		}
		for _, tt := range []struct {
			user string
			mib  int64
			want string
		}{
			{"a", 50, ""}, {"a", 1, "too_many_bodies"}, {"b", 40, ""}, {"c", 20, "busy"}, {"c", 10, ""},
		} {
			if got := take(tt.user, tt.mib); got != tt.want {
				t.Errorf("%d MiB for %s: got %q, want %q", tt.mib, tt.user, got, tt.want)
			}
		}
		go func() {
			time.Sleep(time.Second / 2)
			m.free("a", 50<<20)
		}()
		if got := take("c", 20); got != "" { // it waits
			t.Errorf("after some was freed: got %q", got)
		}
		ctx, leave := context.WithCancel(t.Context())
		leave()
		if m.take(ctx, "a", 50<<20) == nil {
			t.Error("a client that has left got memory")
		}
		m.free("b", 40<<20)
		m.free("c", 30<<20)
		if m.taken != 0 || len(m.of) != 0 {
			t.Errorf("%d bytes are taken by %v", m.taken, m.of)
		}
	})
}

// A request frees its memory when it is answered, with any answer.
func TestBodiesFreeTheirMemory(t *testing.T) {
	r := newRig(t, func(o *Options) { o.BodyMax = 16 << 20 })
	r.do(201, "PUT", "/api/queues/%2F/q", `{}`)
	body := func(n int) string {
		return `{"properties":{},"routing_key":"q","payload":"` + strings.Repeat("a", n) + `","payload_encoding":"string"}`
	}
	r.do(200, "POST", "/api/exchanges/%2F/amq.default/publish", body(8<<20))
	r.do(400, "POST", "/api/exchanges/%2F/amq.default/publish", body(8<<20)+"}")
	r.do(413, "POST", "/api/exchanges/%2F/amq.default/publish", body(17<<20))
	r.do(400, "POST", "/api/definitions", strings.Repeat(" ", 4<<20)+"x")
	if taken := r.api.bodies.taken; taken != 0 {
		t.Errorf("%d bytes are taken", taken)
	}
	r.api.bodies.ofUser, r.api.bodies.wait = 8<<20, 0
	must(t, r.api.bodies.take(t.Context(), "guest", 6<<20))
	w := r.serve(r.request(guest, http.MethodPost, "/api/exchanges/%2F/amq.default/publish", body(8<<20)))
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" || !bytes.Contains(w.Body.Bytes(), []byte("more than 8 MiB")) {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	r.do(200, "POST", "/api/exchanges/%2F/amq.default/publish", body(60<<10)) // a small one needs no place
}
