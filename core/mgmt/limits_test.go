package mgmt

import (
	"io"
	"strings"
	"testing"
)

// bodyThat does something before it is read.
type bodyThat struct {
	do func()
	io.Reader
}

// Read implements [io.Reader].
func (b *bodyThat) Read(p []byte) (int, error) {
	if b.do != nil {
		b.do()
		b.do = nil
	}
	return b.Reader.Read(p)
}

// Two limits of a user or a vhost are two requests, which tools send at the same time: each wrote back the limits that it had read before
// its body came, and the later one took the other's limit away.
func TestLimitsAreSetOneByOne(t *testing.T) {
	for _, tt := range []struct{ first, second, list, want string }{
		{
			first: "/api/user-limits/guest/max-channels", second: "/api/user-limits/guest/max-connections",
			list: "/api/user-limits/guest", want: `[{"user":"guest","value":{"max-connections":5,"max-channels":7}}]`,
		},
		{
			first: "/api/vhost-limits/%2f/max-queues", second: "/api/vhost-limits/%2f/max-connections",
			list: "/api/vhost-limits/%2f", want: `[{"vhost":"/","value":{"max-connections":5,"max-queues":7}}]`,
		},
	} {
		r := newRig(t)
		q := r.request(guest, "PUT", tt.first, "")
		q.Body = io.NopCloser(&bodyThat{func() { r.do(204, "PUT", tt.second, `{"value":5}`) }, strings.NewReader(`{"value":7}`)})
		if w := r.serve(q); w.Code != 204 {
			t.Errorf("%s: %d %s", tt.first, w.Code, w.Body)
		}
		if got := r.do(200, "GET", tt.list, ""); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}
