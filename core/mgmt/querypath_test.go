package mgmt

import (
	"strings"
	"testing"
)

// Browsers resolve the segment "." of a path: a purge of the queue "." arrived as DELETE queues/%2F/contents, and deleted that queue.
func TestNamesThatAreDots(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{".", "..", "contents"} {
		r.do(201, "PUT", "/api/path?of=queues/%252F/"+name, `{}`)
		r.do(200, "POST", "/api/exchanges/%2F/amq.default/publish", `{"properties":{},"routing_key":"`+name+`","payload":"x","payload_encoding":"string"}`)
	}
	r.do(204, "DELETE", "/api/path?of=queues/%252F/./contents", "")
	r.do(204, "DELETE", "/api/path?of=queues/%252F/../contents", "")
	got := r.do(200, "GET", "/api/path?of=queues/%252F&columns=name,messages&sort=name", "")
	for _, want := range []string{`{"name":".","messages":0}`, `{"name":"..","messages":0}`, `{"name":"contents","messages":1}`} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %s in it", got, want)
		}
	}
	r.do(204, "DELETE", "/api/path?of=queues/%252F/..", "")
	for _, kind := range []string{"users", "vhosts"} {
		r.do(201, "PUT", "/api/path?of="+kind+"/..", `{"password":"p","tags":""}`)
		r.do(204, "DELETE", "/api/path?of="+kind+"/..", "")
	}
	for _, wrong := range []string{"", "?of=", "?of=%25zz", "?of=a?b", "?of=a b", "?of=path", "?of=%ff;"} {
		r.do(400, "GET", "/api/path"+strings.ReplaceAll(wrong, " ", "%20"), "")
	}
	r.do(404, "GET", "/api/path?of=queues/%252F/..", "")
}
