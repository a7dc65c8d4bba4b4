package process

import (
	"os"
	"strings"
	"testing"
)

// Block returns the first block of code of a language that contains a text, of a page whose path is relative to the test's folder.
func Block(t *testing.T, page, language, with string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for i, part := range strings.Split(string(text), "\n```") {
		if of, code, _ := strings.Cut(part, "\n"); i%2 == 1 && of == language && strings.Contains(code, with) {
			return code + "\n"
		}
	}
	t.Fatalf("%s has no block of %s with %q", page, language, with)
	return ""
}
