package config

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

// shelf is a plugin's configuration with a map of sections.
type shelf struct {
	Size  int              `koanf:"size"`
	Books map[string]*book `koanf:"books"`
}

type book struct {
	Path  string         `koanf:"path" doc:"Where it is."`
	Tags  []string       `koanf:"tags"`
	Notes map[string]any `koanf:"notes"`
}

func shelfInput(t *testing.T, yaml string, environ ...string) (Input, *shelf) {
	t.Helper()
	in, got := input(t, yaml, environ), &shelf{}
	in.Plugins = append(in.Plugins, hook.NewFactory("shelf", shelf{Size: 3}, func(s shelf) (hook.Plugin, error) {
		*got = s
		for name, b := range s.Books {
			if b.Path == "" {
				return nil, errors.New("books." + name + ".path: is missing")
			}
		}
		return &built{}, nil
	}))
	return in, got
}

const shelfYAML = `
plugins:
  chain: [shelf]
  shelf:
    books:
      b-two: {path: two}
      a_one:
        path: one
        tags: [x, y]
        notes:
          n: 12
          text: "12"
          yes: true
          list: [1, a]
          deep: {er: -1.5e3}
`

func TestMaps(t *testing.T) {
	in, got := shelfInput(t, shelfYAML,
		"CURFEW_PLUGINS__SHELF__BOOKS__A_ONE__PATH=uno",
		"CURFEW_PLUGINS__SHELF__BOOKS__C_THREE__PATH=three",
		"CURFEW_PLUGINS__SHELF__BOOKS__A_ONE__NOTES__DEEP__ER=7",
		"CURFEW_PLUGINS__SHELF__BOOKS__A_ONE__NOTES__LATE_WORD=z")
	c := load(t, in)
	want := map[string]*book{
		"a_one": {
			Path: "uno", Tags: []string{"x", "y"},
			Notes: map[string]any{
				"n": json.Number("12"), "text": "12", "yes": true, "list": []any{json.Number("1"), "a"},
				"deep": map[string]any{"er": json.Number("7")}, "late-word": "z",
			},
		},
		"b-two":   {Path: "two", Notes: map[string]any{}},
		"c-three": {Path: "three", Notes: map[string]any{}},
	}
	if !reflect.DeepEqual(got.Books, want) {
		t.Errorf("got %+v, want %+v", got.Books, want)
	}
	if s := c.setting("plugins.shelf.books.a_one.path").source.String(); s != "env CURFEW_PLUGINS__SHELF__BOOKS__A_ONE__PATH" {
		t.Errorf("source: got %s", s)
	}
}

// A printed configuration can be loaded back, and means the same.
func TestMapsArePrinted(t *testing.T) {
	in, first := shelfInput(t, shelfYAML)
	c := load(t, in)
	var b strings.Builder
	if err := c.Print(&b, true); err != nil {
		t.Fatal(err)
	}
	in, second := shelfInput(t, b.String())
	if changes := c.Changes(load(t, in)); len(changes) > 0 {
		t.Errorf("printed and loaded again, it differs: %+v\n%s", changes, b.String())
	}
	if got, want := second.Books["a_one"], first.Books["a_one"]; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestMapErrors(t *testing.T) {
	for _, tc := range []struct{ name, yaml, want string }{
		{"unknown key in an entry", "{books: {a: {path: p, pth: q}}}", "plugins.shelf.books.a.pth: unknown key; did you mean plugins.shelf.books.a.path?"},
		{"an entry that is no section", "{books: {a: p}}", "plugins.shelf.books.a: is a section; it has the keys plugins.shelf.books.a.path"},
		{"an open section that is none", "{books: {a: {path: p, notes: 5}}}", "plugins.shelf.books.a.notes: is a section: it has keys of your choice, and no value"},
		{"a map that is none", "{books: 5}", "plugins.shelf.books: is a section: it has keys of your choice, and no value"},
		{"an open section that is empty", "{books: {a: {path: p, notes: }}}", "plugins.shelf.books.a.notes: is a section"},
		{"an open value that is empty", "{books: {a: {path: p, notes: {n: }}}}", "plugins.shelf.books.a.notes.n: has no value"},
		{"the plugin's own", "{books: {a: {tags: [x]}}}", "plugins.shelf.books.a.path: is missing"},
	} {
		in, _ := shelfInput(t, "plugins:\n  chain: [shelf]\n  shelf: "+tc.yaml+"\n")
		if _, err := Load(in); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
	}
}
