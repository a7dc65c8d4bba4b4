package mgmt

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// An incomplete body was treated as an error of the broker: 500, and a line in its log. Clients without a login could cause it.
func TestBrokenBodies(t *testing.T) {
	var log bytes.Buffer
	r := newRig(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	for _, tt := range []struct {
		err    error
		status int
	}{
		{os.ErrDeadlineExceeded, 408}, {io.ErrUnexpectedEOF, 400}, {errors.New("malformed chunked encoding"), 400},
	} {
		for _, to := range []string{"POST /api/session", "PUT /api/users/u", "POST /api/definitions", "POST /api/definitions form"} {
			method, path, _ := strings.Cut(to, " ")
			path, form := strings.CutSuffix(path, " form")
			q := r.request(guest, method, path, "")
			q.Header.Set("Content-Type", "application/json")
			if form {
				q.Header.Set("Content-Type", "multipart/form-data; boundary=b")
			}
			q.Body = io.NopCloser(io.MultiReader(strings.NewReader("--b\r\nContent-Disposition: form-data; name=file\r\n\r\n{"), iotest.ErrReader(tt.err)))
			if w := r.serve(q); w.Code != tt.status || log.Len() > 0 {
				t.Errorf("%s, %v: got %d %s, and the log %s", to, tt.err, w.Code, w.Body, &log)
			}
			log.Reset()
		}
	}
}

func TestABodyThatStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLiveBubble(t)
		_, err := b.client.Write([]byte("PUT /api/users/u HTTP/1.1\r\nHost: x\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\nContent-Length: 20\r\n\r\n{"))
		must(t, err)
		answer, err := http.ReadResponse(b.answers, nil)
		must(t, err)
		if answer.StatusCode != 408 || !answer.Close {
			t.Errorf("got %v", answer)
		}
	})
}

// slowShelf compiles for longer than answers may usually take.
type slowShelf struct{ shelf }

func (s *slowShelf) Load(m Module) (bool, []string, error) {
	time.Sleep(2 * time.Minute)
	return s.shelf.Load(m)
}

// A client that loaded a policy which took half a minute to compile got no answer.
func TestLoadingAModuleMayTakeLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLiveBubble(t)
		b.api.modules.modules = &slowShelf{}
		body := `{"module":"AGFzbQ=="}`
		_, err := b.client.Write([]byte("PUT /api/wasm/policies/fresh HTTP/1.1\r\nHost: x\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\nContent-Length: 21\r\n\r\n" + body))
		must(t, err)
		answer, err := http.ReadResponse(bufio.NewReader(b.client), nil)
		must(t, err)
		if answer.StatusCode != 201 {
			t.Errorf("got %v", answer)
		}
	})
}
