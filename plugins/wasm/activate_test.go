package wasm

import (
	"errors"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

func TestActivate(t *testing.T) {
	h := open(t, 1, Env{})
	first := load(t, h, "real", ttl(1000), Options{})
	for _, shadow := range [][2]string{{"shade", "wasm/real"}, {"own", "deadline"}} {
		if _, err := h.Shadow(shadow[0], ttl(2000), Options{}, shadow[1]); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Activate(shadow[0], false); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"real", "own"} {
		got := enqueue1(h.Attach(hooktest.NewQueue(hooktest.Spec{Strategy: prefix + name})), now, hook.Message{})
		if got.Deadline != now.AddMillis(2000) {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	if len(h.List()) != 2 {
		t.Errorf("shadows are left: %+v", h.List())
	}
	if i, _ := h.Info("real"); i.Previous != first.Digest {
		t.Errorf("the version before is %q", i.Previous)
	}
	back, err := h.Back("real", false)
	if err != nil || back.Digest != first.Digest || back.Previous == first.Digest || back.Previous == "" {
		t.Errorf("got %+v, %v", back, err)
	}
	if got := enqueue1(h.Attach(queue("real", nil)), now, hook.Message{}); got.Deadline != now.AddMillis(1000) {
		t.Errorf("after going back: got %+v", got)
	}
	for _, wrong := range []struct {
		do   func(string, bool) (Info, error)
		name string
		want error
	}{{h.Activate, "none", ErrUnknown}, {h.Activate, "real", ErrNotShadow}, {h.Back, "none", ErrUnknown}, {h.Back, "own", ErrNoPrevious}} {
		if _, err := wrong.do(wrong.name, false); !errors.Is(err, wrong.want) {
			t.Errorf("%s: got %v, want %v", wrong.name, err, wrong.want)
		}
	}
}
