package wasm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// failing is a module that traps for every message.
func failing() []byte {
	return assemble(func(b *wt.Builder) { b.Batch(8); b.Each(abi.OnEnqueue, wt.Unreachable) })
}

// changes records the changes that queues see.
type changes struct{ seen []string }

func (c *changes) note(strategy string, recompute bool) {
	if recompute {
		strategy += "!"
	}
	c.seen = append(c.seen, strategy)
}

// A policy is loaded, replaced and unloaded. Queues are notified each time.
func TestLife(t *testing.T) {
	var told changes
	chosen := 0
	h := open(t, 1, Env{Queues: func(string) int { return chosen }})
	h.OnChange(told.note)
	if hs := h.Attach(queue("x", nil)); hs.OnEnqueue != nil || hs.Strategy || len(h.Strategies()) > 0 {
		t.Errorf("before: got %+v, %v", hs, h.Strategies())
	}
	load(t, h, "x", ttl(1000), Options{})
	hs := h.Attach(queue("x", nil))
	if got := enqueue1(hs, now, hook.Message{}).Deadline; got != now.AddMillis(1000) {
		t.Errorf("first version: got %d", got)
	}
	load(t, h, "x", ttl(2000), Options{Recompute: true})
	if got := enqueue1(hs, now, hook.Message{}).Deadline; got != now.AddMillis(2000) {
		t.Errorf("second version, before the queue is attached again: got %d", got)
	}
	if _, err := h.Reload("x", false); err != nil {
		t.Error(err)
	}
	chosen = 2
	if err := h.Unload("x", false); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "2 of them") {
		t.Errorf("unload: got %v", err)
	}
	if err := h.Unload("x", true); err != nil {
		t.Error(err)
	}
	if got, want := enqueue1(hs, now, hook.Message{Expiration: hook.LimitOf(5)}), (hook.Verdict{Again: true, Deadline: now.AddMillis(5)}); got != want {
		t.Errorf("a queue that is not attached again: got %+v, want %+v", got, want)
	}
	for _, err := range []error{h.Unload("x", false), func() error { _, err := h.Reload("x", false); return err }()} {
		if !errors.Is(err, ErrUnknown) {
			t.Errorf("gone: got %v", err)
		}
	}
	if want := []string{"wasm/x", "wasm/x!", "wasm/x", "wasm/x"}; !reflect.DeepEqual(told.seen, want) {
		t.Errorf("told %v, want %v", told.seen, want)
	}
	if len(h.engine.modules) > 0 || len(h.List()) > 0 {
		t.Errorf("%d modules are left", len(h.engine.modules))
	}
}

// When a module is refused, the present one stays.
func TestRefusedVersion(t *testing.T) {
	var told changes
	h := open(t, 1, Env{Store: Dir(t.TempDir())})
	h.OnChange(told.note)
	load(t, h, "x", ttl(1000), Options{})
	if _, err := h.Load("x", []byte("no module"), Options{}); err == nil {
		t.Error("it was accepted")
	}
	if got := enqueue1(h.Attach(queue("x", nil)), now, hook.Message{}).Deadline; got != now.AddMillis(1000) || len(told.seen) != 1 {
		t.Errorf("got %d, told %v", got, told.seen)
	}
}

// Configured policies exist from the start, can be reloaded from their files, and can be neither replaced nor unloaded.
func TestConfigured(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.wasm")
	write := func(b []byte) {
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	section := hooktest.Section{"modules": hooktest.Section{"c": hooktest.Section{"path": file, "config": map[string]any{"n": 5}}}}
	h, _ := hooktest.New(t, Factory, section).(*Host)
	if got := h.Strategies(); len(got) != 1 || got[0] != "wasm/c" {
		t.Errorf("before it is open: got %v", got)
	}
	if err := h.Open(Env{}); err == nil || !strings.HasPrefix(err.Error(), "plugins.wasm.modules.c: path: open ") {
		t.Errorf("no file: got %v", err)
	}
	write(ttl(1000))
	if err := h.Open(Env{}); err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := h.Open(Env{}); err == nil {
		t.Error("it was opened twice")
	}
	write(ttl(3000))
	i, err := h.Reload("c", true)
	if err != nil || i.Path != file || i.Origin != Configured || string(i.Config) != `{"n":5}` {
		t.Errorf("got %+v, %v", i, err)
	}
	if got := enqueue1(h.Attach(queue("c", nil)), now, hook.Message{}).Deadline; got != now.AddMillis(3000) {
		t.Errorf("the new file: got %d", got)
	}
	if _, err := h.Load("c", ttl(1), Options{}); !errors.Is(err, ErrConfigured) {
		t.Errorf("load: got %v", err)
	}
	if err := h.Unload("c", true); !errors.Is(err, ErrConfigured) {
		t.Errorf("unload: got %v", err)
	}
}

// A configured policy whose file is replaced or missing stays in force. It is carried without its module.
func TestCarriedConfigured(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.wasm")
	write := func(b []byte) {
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(ttl(1000))
	h, _ := hooktest.New(t, Factory, hooktest.Section{"modules": hooktest.Section{"c": hooktest.Section{"path": file}}}).(*Host)
	if err := h.Open(Env{}); err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	i, _ := h.Info("c")
	check := func(what string, module []byte) {
		t.Helper()
		all := h.Carried()
		if len(all) != 1 || all[0].Name != "c" || all[0].Origin != Configured || all[0].Options.Digest != i.Digest || !bytes.Equal(all[0].Module, module) {
			t.Errorf("%s: carried are %+v, want the module %x", what, all, i.Digest)
		}
	}
	check("as configured", ttl(1000))
	write(ttl(2000))
	check("another file", nil)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	check("no file", nil)
}

// Policies loaded while the broker ran are back after a restart, with their settings, unless the module no longer loads or the file is
// damaged, which is reported.
func TestRestart(t *testing.T) {
	dir := Dir(filepath.Join(t.TempDir(), "policies"))
	o := Options{Config: json.RawMessage(`{"a":1}`), Grants: []string{"headers"}, Fuel: 20_000, OnError: Keep}
	first := open(t, 1, Env{Store: dir})
	for _, name := range []string{"kept", "gone", "damaged", "configured"} {
		load(t, first, name, ttl(1000), o)
	}
	if err := first.Unload("gone", false); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(dir.path("damaged"))
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(dir.path("damaged"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := dir.Save(StoredPolicy{Name: "outdated", Module: []byte("what an older broker took")}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir.path("torn")+".new", b[:10], 0o600); err != nil {
		t.Fatal(err)
	}

	var log lines
	s := modules(t, map[string][]byte{"configured": ttl(5)})
	second, _ := hooktest.New(t, Factory, s).(*Host)
	if err := second.Open(Env{Store: dir, Log: log.logger()}); err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if got := strings.Join(second.Strategies(), " "); got != "wasm/configured wasm/kept wasm/outdated" {
		t.Errorf("got %s", got)
	}
	i, _ := second.Info("kept")
	if i.Origin != Loaded || string(i.Config) != `{"a":1}` || strings.Join(i.Grants, " ") != "headers" || i.Fuel != 20_000 || i.OnError != Keep {
		t.Errorf("got %+v", i)
	}
	if i, _ := second.Info("configured"); i.Origin != Configured {
		t.Errorf("configured: got %+v", i)
	}
	if got := strings.Join(second.Alarms(), " "); got != "wasm/damaged wasm/outdated" {
		t.Errorf("alarms: got %s", got)
	}
	if i, _ := second.Info("damaged"); i.Loaded || !strings.Contains(i.LastError, "its digest differs") {
		t.Errorf("damaged: got %+v", i)
	}
	got := enqueue1(second.Attach(queue("outdated", map[string]any{"message-ttl": int32(7)})), now, hook.Message{})
	if want := (hook.Verdict{Again: true, Deadline: now.AddMillis(7)}); got != want {
		t.Errorf("outdated: got %+v, want %+v", got, want)
	}
	if _, err := second.Reload("damaged", false); err == nil || !strings.Contains(err.Error(), "its digest differs") {
		t.Errorf("reload: got %v", err)
	}
	load(t, second, "damaged", ttl(1000), o)
	if err := second.Unload("outdated", false); err != nil {
		t.Fatal(err)
	}
	if got := second.Alarms(); len(got) > 0 {
		t.Errorf("one is loaded again and one unloaded: alarms %v", got)
	}
	if all, err := dir.LoadAll(); err != nil || len(all) != 3 || all[0].Damage != nil || all[1].Damage != nil || all[2].Damage != nil {
		t.Errorf("got %+v, %v", all, err)
	}
	for _, want := range []string{"its digest differs", "not a WebAssembly module", "has the name of a configured one"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, log.String())
		}
	}
}

// full is a store without space.
type full struct{ Dir }

func (full) Save(StoredPolicy) error { return errors.New("no space left") }

func TestNotKept(t *testing.T) {
	h := open(t, 1, Env{Store: full{Dir(t.TempDir())}})
	if _, err := h.Load("x", ttl(1), Options{}); !errors.Is(err, ErrNotStored) || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("got %v", err)
	}
	if len(h.List()) > 0 || len(h.engine.modules) > 0 {
		t.Error("it is there all the same")
	}
}

// A new version that fails too often is replaced by the previous one; a version that has been in force for long, or that has no previous
// one, is not.
func TestRollBack(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before []byte
		after  time.Duration // that it worked
		back   bool
	}{
		{"new", ttl(1000), 0, true},
		{"old", ttl(1000), probation + time.Second, false},
		{"first", nil, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var work sync.WaitGroup
			dir, log, told := Dir(t.TempDir()), lines{}, changes{}
			h := open(t, 1, Env{Store: dir, Log: log.logger(), Go: work.Go})
			h.OnChange(told.note)
			if tc.before != nil {
				load(t, h, "x", tc.before, Options{})
			}
			bad := load(t, h, "x", failing(), Options{})
			hs := h.Attach(queue("x", nil))
			enqueue1(hs, now, hook.Message{})
			at := now.Add(tc.after)
			for range tolerated {
				at = at.Add(5 * time.Second)
				enqueue1(hs, at, hook.Message{})
			}
			work.Wait()
			i, _ := h.Info("x")
			if (i.RolledBack == bad.Digest) != tc.back || (i.Breaker == "closed") != tc.back {
				t.Errorf("got %+v", i)
			}
			if !tc.back {
				return
			}
			if got := enqueue1(hs, at, hook.Message{}).Deadline; got != at.AddMillis(1000) {
				t.Errorf("got %d", got)
			}
			if all, err := dir.LoadAll(); err != nil || len(all) != 1 || !reflect.DeepEqual(all[0].Module, tc.before) {
				t.Errorf("kept %+v, %v", all, err)
			}
			if len(told.seen) != 3 || !strings.Contains(log.String(), "the previous version is in force again") || len(h.engine.modules) != 1 {
				t.Errorf("told %v, %d modules, log:\n%s", told.seen, len(h.engine.modules), &log)
			}
		})
	}
}

// A shadow is called and counted, without effect.
func TestShadow(t *testing.T) {
	var told changes
	h := open(t, 1, Env{})
	h.OnChange(told.note)
	load(t, h, "real", ttl(1000), Options{})
	if _, err := h.Shadow("shade", ttl(2000), Options{}, "wasm/real"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Shadow("other", ttl(1000), Options{}, "deadline"); err != nil {
		t.Fatal(err)
	}
	hs := h.Attach(queue("real", nil))
	for range 10 {
		if got := enqueue1(hs, now, hook.Message{}).Deadline; got != now.AddMillis(1000) {
			t.Fatalf("a shadow is heard: got %d", got)
		}
	}
	native := h.Attach(hooktest.NewQueue(hooktest.Spec{Strategy: "deadline"}))
	vs := []hook.Verdict{{Deadline: now.AddMillis(1000)}, {Deadline: now.AddMillis(7)}, {}}
	native.OnEnqueue(now, hooktest.Messages(hook.Message{Enqueued: now}, hook.Message{Enqueued: now}, hook.Message{Enqueued: now}), vs)
	if native.Strategy || vs[1].Deadline != now.AddMillis(7) {
		t.Errorf("got %+v, %+v", native, vs)
	}
	for name, want := range map[string]ShadowInfo{
		"shade": {Strategy: "wasm/real", Compared: 10, Differing: 10}, "other": {Strategy: "deadline", Compared: 3, Differing: 2},
	} {
		if i, _ := h.Info(name); i.Strategy != "" || i.Shadow == nil || *i.Shadow != want {
			t.Errorf("%s: got %+v, want %+v", name, i.Shadow, want)
		}
	}
	if got := strings.Join(h.Strategies(), " "); got != "wasm/real" {
		t.Errorf("got %s", got)
	}
	for _, wrong := range [][2]string{{"more", "wasm/real"}, {"real", "deadline"}, {"shade", "deadline"}, {"x", ""}, {"x", "wasm/x"}} {
		if _, err := h.Shadow(wrong[0], ttl(1), Options{}, wrong[1]); err == nil {
			t.Errorf("%s beside %s was accepted", wrong[0], wrong[1])
		}
	}
	if _, err := h.Load("shade", ttl(1), Options{}); err == nil {
		t.Error("a shadow's name was taken")
	}
	for _, name := range []string{"shade", "other"} {
		if err := h.Unload(name, false); err != nil {
			t.Error(err)
		}
	}
	if want := []string{"wasm/real", "wasm/real", "deadline", "wasm/real", "deadline"}; !reflect.DeepEqual(told.seen, want) {
		t.Errorf("told %v, want %v", told.seen, want)
	}
}

// Hot reloads under load: every message gets the verdict of a version that was in force, and no resources of old versions remain.
func TestHotReloads(t *testing.T) {
	const reloads = 100 // make reloads does more of them, in a broker
	h := open(t, 2, Env{})
	load(t, h, "x", ttl(1), Options{})
	hs := h.Attach(queue("x", nil))
	stop := make(chan struct{})
	var workers sync.WaitGroup
	wrong := make(chan hook.Verdict, 2)
	for range 2 {
		workers.Go(func() { wrong <- askUntil(stop, hs) })
	}
	goroutines := runtime.NumGoroutine()
	for i := range reloads {
		if _, err := h.Load("x", ttl(int64(i%7)+1), Options{Config: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))}); err != nil {
			t.Fatal(err)
		}
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines, %d before", n, goroutines)
	}
	close(stop)
	workers.Wait()
	for range 2 {
		if v := <-wrong; v != (hook.Verdict{}) {
			t.Errorf("got %+v", v)
		}
	}
	i, _ := h.Info("x")
	if i.Errors["unavailable"]+i.Errors["trap"] > 0 || len(h.engine.modules) > 2 || i.Memory > 2*pageSize {
		t.Errorf("got %+v, %d modules", i, len(h.engine.modules))
	}
}

// askUntil calls the policy about entering messages, and returns a verdict that no version gives.
func askUntil(stop <-chan struct{}, hs hook.Hooks) (wrong hook.Verdict) {
	for {
		select {
		case <-stop:
			return wrong
		default:
		}
		ms := []hook.Message{{Enqueued: now}, {Enqueued: now}}
		vs := make([]hook.Verdict, len(ms))
		hooktest.Bind(ms)
		hs.OnEnqueue(now, ms, vs)
		for _, v := range vs {
			if ttl := v.Deadline.Sub(now); v.Action != hook.Keep || ttl < time.Millisecond || ttl > 7*time.Millisecond {
				wrong = v
			}
		}
	}
}
