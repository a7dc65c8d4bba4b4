package repo

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// rooms returns the packages in the table of core/README.md, with the numbers of their rows.
func rooms(t *testing.T) map[string]int {
	t.Helper()
	_, table, found := strings.Cut(read(t, "core/README.md"), "\n## Rooms\n")
	if !found {
		t.Fatal("core/README.md has no section Rooms")
	}
	table, _, _ = strings.Cut(table, "\n## ")
	all := map[string]int{}
	for i, row := range strings.Split(table, "\n") {
		if !strings.HasPrefix(row, "| `") {
			continue
		}
		first, rest, _ := strings.Cut(strings.TrimPrefix(row, "| "), " |")
		for _, m := range regexp.MustCompile("`([a-z/]+)`").FindAllStringSubmatch(first, -1) {
			all[m[1]] = i
		}
		for _, m := range regexp.MustCompile("`([a-z]+/[a-z/]+)`").FindAllStringSubmatch(rest, -1) { // what lies in a package of the row
			all[m[1]] = i
		}
	}
	return all
}

// The page about the core has each of its packages, and none imports a package of a later row.
func TestRooms(t *testing.T) {
	all, found := rooms(t), map[string]bool{}
	for _, s := range sources(t) {
		room, ok := strings.CutPrefix(s.dir(), "core/")
		if !ok || s.isTest() || strings.Contains(room, "testdata") {
			continue
		}
		row, listed := all[room]
		if !listed && !found[room] {
			t.Errorf("core/README.md has no line for core/%s", room)
		}
		found[room] = true
		for _, spec := range s.ast.Imports {
			pkg, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			other, ok := strings.CutPrefix(pkg, module+"/core/")
			if ok && listed && all[other] > row {
				t.Errorf("%s: core/%s must not import core/%s, which stands below it in core/README.md", s.at(spec.Pos()), room, other)
			}
		}
	}
	for room := range all {
		if !found[room] {
			t.Errorf("core/README.md has core/%s, and there is no such package", room)
		}
	}
}
