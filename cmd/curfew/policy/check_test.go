package policy

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/sdk/abi"
)

func TestCheck(t *testing.T) {
	b := wt.New()
	counter, header := b.Host("counter_add"), b.Host("header_i64")
	b.Batch(100)
	name := b.Text(wt.Scratch, "n")
	b.Each(abi.OnEnqueue,
		name, wt.I64(1), wt.Call(counter),
		wt.LocalGet(wt.Index), name, wt.I64(0), wt.Call(header), wt.Drop)
	b.Has(abi.OnIdle.String(), wt.I64(-2))
	module := file(t, "m.wasm", string(b.Bytes()))
	r := curfewPolicy(t, "check", module)
	for _, want := range []string{
		`digest +sha256:[0-9a-f]{64}`, `size +\d+ bytes`, `speaks +policy_v1`, `exports +on_enqueue, on_idle`,
		`imports +counter_add, header_i64`, `grants +headers, metrics`, `in use +on_enqueue, on_idle`, `messages at once +100`,
		`fuel to start +\d+`, `fuel of on_enqueue +\d+ for one message, \d+ for each of 64`, `fuel of on_idle +\d+`,
		`fuel of a call +at most 1500000, a pause of 1.5ms at the worst`,
	} {
		if !regexp.MustCompile(`(?m)^` + want + `$`).MatchString(r.stdout) {
			t.Errorf("%s is missing", want)
		}
	}
	if r.status != 0 || t.Failed() {
		t.Errorf("got %+v", r)
	}
	r = curfewPolicy(t, "check", module, "--grants", "headers")
	if r.status != 1 || !strings.Contains(r.stderr, "needs the grant metrics; granted: headers") {
		t.Errorf("got %+v", r)
	}
}

// A module that takes one message at a time was reported to take 0 messages at once.
func TestCheckWithoutBatches(t *testing.T) {
	r := curfewPolicy(t, "check", filepath.Join("..", "..", "..", "wasm-examples", "size-ttl", "size.wasm"))
	if r.status != 0 || !regexp.MustCompile(`(?m)^messages at once +1$`).MatchString(r.stdout) {
		t.Errorf("got %+v", r)
	}
}

func TestWhatIsNoPolicy(t *testing.T) {
	for _, tc := range []struct{ name, module, want string }{
		{"text", "(module)", ""},
		{"empty module", "\x00asm\x01\x00\x00\x00", "the module exports no policy_v1: it is not an expiry policy, or its exports were left out when it was built"},
		{"too large", strings.Repeat("a", maxModule+1), "is too large: accepted are up to 8388608 bytes"},
	} {
		for _, command := range []string{"check", "bench"} {
			r := curfewPolicy(t, command, file(t, "m.wasm", tc.module))
			if r.status != 1 || r.stdout != "" || !strings.HasPrefix(r.stderr, "curfew policy "+command+": ") || !strings.Contains(r.stderr, tc.want) {
				t.Errorf("%s: got %+v", tc.name, r)
			}
		}
	}
}

func TestBench(t *testing.T) {
	r := curfewPolicy(t, "bench", keeping(t, 1), "--duration", "1ms")
	rows := regexp.MustCompile(`(?m)^ +(\d+) +[\d.]+ +[\d.]+ +(\d+) +\S+ *$`).FindAllStringSubmatch(r.stdout, -1)
	if r.status != 0 || len(rows) != 4 || rows[3][1] != "256" {
		t.Fatalf("got %+v", r)
	}
	for _, row := range rows {
		if row[2] == "0" {
			t.Errorf("%s messages at once took no fuel", row[1])
		}
	}
}

// Warnings of a broker about a module are also printed by check and test.
func TestWarnings(t *testing.T) {
	b := wt.New()
	get := b.Host("config_i64")
	b.Batch(8)
	b.Has(abi.ExportConfigure, b.Text(wt.Scratch, "ttl-ms"), wt.I64(5), wt.Call(get), wt.Drop, wt.I32(0))
	b.Each(abi.OnEnqueue)
	module := file(t, "m.wasm", string(b.Bytes()))
	trace := file(t, "t.ndjson", `{"event":"publish","at":0}`)
	const want = "warning: config: ttl_ms was not read while the module was tried; did you mean ttl-ms?\n"
	for _, args := range [][]string{{"check", module}, {"test", module, "--trace", trace}} {
		if r := curfewPolicy(t, append(args, "--config", `{"ttl_ms":1}`)...); r.status != 0 || r.stderr != want {
			t.Errorf("%s: got %+v", args[0], r)
		}
		if r := curfewPolicy(t, append(args, "--config", `{"ttl-ms":1}`)...); r.status != 0 || r.stderr != "" {
			t.Errorf("%s: got %+v", args[0], r)
		}
	}
}
