package app

import (
	"errors"
	"strings"
	"testing"
)

// serve --open logs the page's address, and continues if there is no browser.
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
				if got, want := <-opened, "http://127.0.0.1:0/"; got != want {
					t.Errorf("opened %s, want %s", got, want)
				}
			}
			p.stop()
		})
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
