package app

import (
	"errors"
	"strings"
	"testing"
)

// serve --open says where the page is, and runs on if no browser can be had.
func TestOpen(t *testing.T) {
	for _, tt := range []struct {
		name, config string
		fails        error
		want         []string
		opened       bool
	}{
		{"a browser", local, nil, []string{"opening the management page"}, true},
		{"none", local, errors.New("xdg-open: not found"), []string{"opening the management page", "the management page cannot be opened: open it yourself"}, true},
		{"no page", "listen: {amqp: \"127.0.0.1:0\", management: off}\n", nil, []string{"there is no page to open: listen.management is off"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			opened := make(chan string, 1)
			p := launchWith(t, newFake(), func(a *app) {
				a.browse = func(address string, _ func(error)) error {
					opened <- address
					return tt.fails
				}
			}, tt.config, "--open")
			p.wait("ready")
			for _, message := range tt.want {
				p.wait(message)
			}
			if tt.opened {
				if got, want := <-opened, "http://"+p.addr["listen.management"]+"/"; got != want {
					t.Errorf("opened %s, want %s", got, want)
				}
			}
			p.stop()
		})
	}
}

func TestReachable(t *testing.T) {
	for listener, want := range map[string]string{
		"[::]:15672": "localhost:15672", "0.0.0.0:1": "localhost:1", "127.0.0.1:15672": "127.0.0.1:15672", "[::1]:2": "[::1]:2", "192.0.2.1:3": "192.0.2.1:3",
	} {
		if got := reachable(listener); got != want {
			t.Errorf("%s: got %s, want %s", listener, got, want)
		}
	}
}

func TestOpeners(t *testing.T) {
	for system, want := range map[string]string{"linux": "xdg-open", "freebsd": "xdg-open", "darwin": "open", "windows": "rundll32 url.dll,FileProtocolHandler"} {
		name, args := opener(system)
		if got := strings.Join(append([]string{name}, args...), " "); got != want {
			t.Errorf("%s: got %s", system, got)
		}
	}
}
