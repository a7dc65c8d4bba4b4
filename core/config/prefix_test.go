package config

import (
	"fmt"
	"testing"
)

func TestPrefixes(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.7":                   "[10.0.0.7/32]",
		"::1":                        "[::1/128]",
		"::ffff:10.0.0.7":            "[10.0.0.7/32]", // as connections are compared
		"192.0.2.0/24,2001:db8::/32": "[192.0.2.0/24 2001:db8::/32]",
		"0.0.0.0/0, ::/0":            "[0.0.0.0/0 ::/0]",
		"":                           "[]",
	} {
		c := load(t, input(t, "", []string{"CURFEW_LISTEN__PROXY_PROTOCOL=" + text}))
		if got := fmt.Sprint(c.Listen.ProxyProtocol); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
		again := load(t, input(t, "listen: {proxy-protocol: "+c.setting("listen.proxy-protocol").value.YAML()+"}", nil))
		if got := fmt.Sprint(again.Listen.ProxyProtocol); got != want {
			t.Errorf("%q: printed and read again: %s", text, got)
		}
	}
	for _, text := range []string{"::ffff:10.0.0.0/104", "10.0.0.0/33", "10.0.0/8", "localhost", "10.0.0.1:80", "*"} {
		if _, err := Load(input(t, "", []string{"CURFEW_LISTEN__PROXY_PROTOCOL=" + text})); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
