package process

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"
)

// Ask sends a request to the management API, with body as JSON unless it is nil. It requires the status and returns the response's
// body.
func (p *Process) Ask(t *testing.T, status int, method, path string, body any) []byte {
	t.Helper()
	var content []byte
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			t.Fatal(err)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+p.Management+"/api/"+path, bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth("guest", "guest")
	code, got, err := Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if code != status {
		t.Fatalf("%s %s: got %d %s, want %d", method, path, code, got, status)
	}
	return []byte(got)
}

// Do sends a request over a new connection, which is closed afterwards.
func Do(r *http.Request) (status int, body string, err error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: Patience}
	answer, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(all), err
}
