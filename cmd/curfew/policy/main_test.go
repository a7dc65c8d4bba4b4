package policy

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"go.uber.org/goleak"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/sdk/abi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// result is the result of a command line.
type result struct {
	status         int
	stdout, stderr string
}

// curfewPolicy runs a command line.
func curfewPolicy(t *testing.T, args ...string) result {
	t.Helper()
	return over(t, nil, args...)
}

// over runs a command line whose API requests go to transport.
func over(t *testing.T, transport http.RoundTripper, args ...string) result {
	t.Helper()
	if transport == nil {
		transport = noNetwork{t}
	}
	var stdout, stderr bytes.Buffer
	p := &Program{Environ: os.Environ(), Stdout: &stdout, Stderr: &stderr, transport: transport}
	status := p.run(t.Context(), args)
	return result{status, fuel.ReplaceAllString(stdout.String(), "used F of M"), stderr.String()}
}

// fuel matches the cost of a call, which package meter determines.
var fuel = regexp.MustCompile(`used \d+ of \d+`)

type noNetwork struct{ t *testing.T }

func (n noNetwork) RoundTrip(r *http.Request) (*http.Response, error) {
	n.t.Errorf("a call of the API: %s %s", r.Method, r.URL)
	return nil, io.EOF
}

// want fails the test if a command ended differently.
func (r result) want(t *testing.T, status int, stdout, stderr string) {
	t.Helper()
	if r.status != status || r.stdout != stdout || r.stderr != stderr {
		t.Errorf("got status %d\n%s--\n%s\nwant %d\n%s--\n%s", r.status, r.stdout, r.stderr, status, stdout, stderr)
	}
}

// file writes a file and returns its path.
func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// keeping is a module that keeps messages for a while after they entered, and again after they came back.
func keeping(t *testing.T, millis int64) string {
	t.Helper()
	b := wt.New()
	b.Memory(2, 16)
	b.Batch(300)
	b.Each(abi.OnEnqueue, wt.Keep(wt.LocalGet(wt.Record), wt.I64Load(abi.RecordEnqueued), wt.I64(millis), wt.I64Add))
	b.Each(abi.OnRequeue, wt.Keep(wt.LocalGet(wt.Now), wt.I64(millis), wt.I64Add))
	return file(t, "keeping.wasm", string(b.Bytes()))
}
