package policy

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
)

// fakeAPI answers requests, and records them.
type fakeAPI struct {
	t      *testing.T
	answer func(method, path string) (status int, body string)
	calls  []string
	bodies []string
}

func (f *fakeAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		f.t.Error(err)
	}
	user, password, _ := r.BasicAuth()
	if user != "me" || password != "secret" {
		f.t.Errorf("user %s, password %s", user, password)
	}
	path := r.URL.EscapedPath()
	if r.URL.RawQuery != "" {
		path += "?" + r.URL.RawQuery
	}
	f.calls, f.bodies = append(f.calls, r.Method+" "+r.URL.Host+path), append(f.bodies, string(body))
	status, text := f.answer(r.Method, path)
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
}

func always(status int, body string) func(string, string) (int, string) {
	return func(string, string) (int, string) { return status, body }
}

// asMe configures the API for tests: half by flags, half by the environment.
func asMe(t *testing.T, args ...string) []string {
	t.Helper()
	t.Setenv("CURFEW_CTL_PASSWORD", "secret")
	return append(args, "--host", "broker", "-u", "me")
}

func TestLoad(t *testing.T) {
	module := keeping(t, 10)
	content, err := os.ReadFile(module)
	if err != nil {
		t.Fatal(err)
	}
	api := &fakeAPI{t: t, answer: always(http.StatusCreated, "")}
	r := over(t, api, asMe(t, "load", "tempo", module, "--config", `{"a":{"b":1}}`, "--grants", "headers,route", "--fuel", "large", "--recompute")...)
	if r.status != 0 || !strings.HasPrefix(r.stdout, "loaded as the expiry strategy wasm/tempo, sha256:") || r.stderr != "" {
		t.Errorf("got %+v", r)
	}
	if len(api.calls) != 1 || api.calls[0] != "PUT broker:15672/api/wasm/policies/tempo" {
		t.Fatalf("got %q", api.calls)
	}
	var sent struct {
		Module                []byte
		Digest, Fuel, OnError string
		Config                json.RawMessage
		Grants                []string
		Recompute             bool
	}
	if err := json.Unmarshal([]byte(api.bodies[0]), &sent); err != nil {
		t.Fatal(err)
	}
	if string(sent.Module) != string(content) || !strings.HasSuffix(r.stdout, sent.Digest+"\n") || string(sent.Config) != `{"a":{"b":1}}` ||
		strings.Join(sent.Grants, "+") != "headers+route" || sent.Fuel != "large" || !sent.Recompute {
		t.Errorf("got %+v", sent)
	}
	r = over(t, api, asMe(t, "load", "trial", module, "--shadow", "deadline")...)
	if r.status != 0 || !strings.HasPrefix(r.stdout, "trial runs beside deadline, sha256:") || !strings.Contains(api.bodies[1], `"shadow":"deadline"`) {
		t.Errorf("got %+v, sent %s", r, api.bodies[1])
	}
}

func TestLoadIsRefused(t *testing.T) {
	api := &fakeAPI{t: t, answer: always(http.StatusBadRequest, `{"error":"bad_request","reason":"policy \"tempo\": ttl-ms is too low"}`)}
	over(t, api, asMe(t, "load", "tempo", keeping(t, 10))...).want(t, 1, "", "curfew policy load: policy \"tempo\": ttl-ms is too low\n")
	r := over(t, nil, asMe(t, "load", "tempo", file(t, "m.wasm", "\x00asm\x01\x00\x00\x00"))...)
	if r.status != 1 || !strings.Contains(r.stderr, "exports no policy_v1") {
		t.Errorf("got %+v", r)
	}
}

func TestReloadAndUnload(t *testing.T) {
	api := &fakeAPI{t: t, answer: always(http.StatusNoContent, "")}
	for _, args := range []string{"reload a/b", "reload tempo --recompute", "unload tempo", "unload --force tempo"} {
		over(t, api, asMe(t, strings.Fields(args)...)...).want(t, 0, "", "")
	}
	want := "POST broker:15672/api/wasm/policies/a%2Fb/reload\nPOST broker:15672/api/wasm/policies/tempo/reload\n" +
		"DELETE broker:15672/api/wasm/policies/tempo\nDELETE broker:15672/api/wasm/policies/tempo?force=true"
	if got := strings.Join(api.calls, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if api.bodies[0] != `{"recompute":false}` || api.bodies[1] != `{"recompute":true}` {
		t.Errorf("got %q", api.bodies)
	}
	api.answer = always(http.StatusNotFound, `{"error":"not_found","reason":"policy \"nope\": there is no such policy"}`)
	for _, command := range []string{"reload", "unload"} { // the error used to end there, and did not say how to find the name
		over(t, api, asMe(t, command, "nope")...).want(t, 1, "",
			"curfew policy "+command+": policy \"nope\": there is no such policy; \"curfew policy list\" names the loaded ones\n")
	}
	api.answer = always(http.StatusUnauthorized, `{"error":"not_authorized","reason":"Login failed"}`)
	over(t, api, asMe(t, "unload", "tempo")...).want(t, 1, "",
		"curfew policy unload: http://broker:15672 does not know user 'me' with this password: Login failed\n\n"+
			"--username and --password, or CURFEW_CTL_USERNAME and CURFEW_CTL_PASSWORD, specify others.\n")
}

// The stack of a Go policy's panic used to start at the margin, like policies' names.
func TestList(t *testing.T) {
	const answer = `[
{"name":"a","origin":"loaded","loaded":true,"hooks":["on_enqueue","on_idle"],"messages":12,"errors":{"trap":1,"fuel":2},"fuel":"large","memory":65536,"digest":"0123456789abcdef","breaker":"closed"},
{"name":"b","origin":"loaded","loaded":false,"last_error":"b.policy: panic: no\n\ngoroutine 1:\nmain.f()\n"},
{"name":"c","origin":"loaded","loaded":true,"breaker":"open","open_until":"2026-01-05T09:00:00Z"},
{"name":"d","origin":"shadow","loaded":true,"breaker":"closed","shadow":{"strategy":"deadline","compared":7,"differing":3}}]`
	api := &fakeAPI{t: t, answer: always(http.StatusOK, answer)}
	over(t, api, asMe(t, "list")...).want(t, 0, strings.Join([]string{
		"name  origin              state                                hooks               messages  errors  fuel     memory  digest",
		"a     loaded              works                                on_enqueue,on_idle  12        3       large    64KiB   0123456789ab",
		"b     loaded              not loaded                                               0         0       default  0       ",
		"c     loaded              not asked until 2026-01-05 09:00:00                      0         0       default  0       ",
		"d     shadow of deadline  differs in 3 of 7                                        0         0       default  0       ",
		"b: b.policy: panic: no", "    ", "    goroutine 1:", "    main.f()", "",
	}, "\n"), "")
	over(t, api, asMe(t, "list", "--json")...).want(t, 0, answer+"\n", "")
	api.answer = always(http.StatusOK, `{}`)
	if r := over(t, api, asMe(t, "list")...); r.status != 1 || !strings.HasPrefix(r.stderr, "curfew policy list: the answer is not understood: ") {
		t.Errorf("got %+v", r)
	}
}

// Errors of the API's client are reported as errors of this command.
func TestUnreachable(t *testing.T) {
	r := over(t, unreachable{}, asMe(t, "list")...)
	if want := "curfew policy list: unable to reach the management API at http://broker:15672: connection refused\n"; r.status != 1 || !strings.HasPrefix(r.stderr, want) {
		t.Errorf("got %+v, want %q", r, want)
	}
}

type unreachable struct{}

func (unreachable) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("connection refused")
}

// The broker's warnings are printed when a policy is loaded, and in the list.
func TestWarningsOfABroker(t *testing.T) {
	module := keeping(t, 10)
	api := &fakeAPI{t: t, answer: always(http.StatusOK, `{"warnings":["config: a was not read"]}`)}
	for _, args := range [][]string{{"load", "tempo", module}, {"reload", "tempo"}} {
		if r := over(t, api, asMe(t, args...)...); r.status != 0 || r.stderr != "warning: config: a was not read\n" {
			t.Errorf("%s: got %+v", args[0], r)
		}
	}
	api.answer = always(http.StatusOK, `[{"name":"tempo","loaded":true,"warnings":["config: a was not read"]}]`)
	if r := over(t, api, asMe(t, "list")...); r.status != 0 || !strings.Contains(r.stdout, "\ntempo: warning: config: a was not read\n") {
		t.Errorf("got %+v", r)
	}
}
