package ctl

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// codeSpan is `text` in a page that is one word.
var codeSpan = regexp.MustCompile("`([^`\\s]+)`")

// The README names every command and every variable, and no command that does not exist.
func TestReadme(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, m := range codeSpan.FindAllStringSubmatch(string(page), -1) {
		words = append(words, m[1])
	}
	for _, name := range commandNames() {
		if !slices.Contains(words, name) {
			t.Errorf("the command %s is missing", name)
		}
	}
	for _, name := range []string{urlVariable, usernameVariable, passwordVariable, cacertVariable, insecureVariable, certVariable, keyVariable} {
		if !slices.Contains(words, name) {
			t.Errorf("the variable %s is missing", name)
		}
	}
	likeCommand := regexp.MustCompile(`^(add|delete|clear|set|list|close|check|await|export|import|purge|enable)_[a-z_]+$`)
	for _, w := range words {
		if likeCommand.MatchString(w) && !slices.Contains(commandNames(), w) && absent(w) == "" {
			t.Errorf("there is no command %s", w)
		}
	}
}
