package ctl

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"
)

// The hash is in the format that RabbitMQ and the broker call rabbit_password_hashing_sha256.
func TestHashPassword(t *testing.T) {
	seen := map[string]bool{}
	for range 2 {
		var out, errs bytes.Buffer
		p := Program{Name: "rabbitmqctl", Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs}
		if status := p.Run([]string{"hash_password", "secret", "--silent"}); status != 0 {
			t.Fatalf("exit status %d: %s", status, &errs)
		}
		line := strings.TrimSpace(out.String())
		raw, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(raw) != 4+sha256.Size {
			t.Fatalf("printed %q: %v", line, err)
		}
		if sum := sha256.Sum256(append(raw[:4:4], "secret"...)); !bytes.Equal(raw[4:], sum[:]) || seen[line] {
			t.Errorf("%s is not the hash of the password with a salt of its own", line)
		}
		seen[line] = true
	}
}
