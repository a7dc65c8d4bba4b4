package page

import (
	"strings"
	"testing"
)

func TestJoin(t *testing.T) {
	modules := map[string][]byte{
		"app.js":      []byte("import {twice as double, ONE} from './lib/a.js';\nimport view from './view.js';\nview(double(ONE), () => import('./late.js'));"),
		"view.js":     []byte("import {ONE} from './lib/a.js';\nexport default function show(n, load) {\nreturn n + ONE;\n}"),
		"late.js":     []byte("export default async function late() {}"),
		"lib/a.js":    []byte("import {id} from '../id.js';\nexport const ONE = id(1);\nexport function twice(n) {\nreturn 2 * n;\n}"),
		"id.js":       []byte("export const id = (x) => x;"),
		"unneeded.js": []byte("export const x = 1;"),
	}
	got, err := join(modules, "app.js")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"const {twice: double, ONE} = $", "const {default: view} = $", "Promise.resolve($", "return {default: show};", "return {default: late};",
		"return {ONE, twice};", "return {id};",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("there is no %q in\n%s", want, got)
		}
	}
	order := []string{"// id.js", "// lib/a.js", "// view.js", "// late.js", "// app.js"}
	for i := range order[1:] {
		if strings.Index(string(got), order[i]) > strings.Index(string(got), order[i+1]) {
			t.Errorf("%s does not stand before %s in\n%s", order[i], order[i+1], got)
		}
	}
	if strings.Contains(string(got), "unneeded") {
		t.Error("what nobody needs is sent")
	}
}

func TestWhatCannotBeJoined(t *testing.T) {
	for text, want := range map[string]string{
		"import * as all from './a.js';":  `modules that are joined cannot have "import * as all`,
		"export let x = 1;":               `cannot have "export let`,
		"export {x} from './a.js';":       `cannot have "export {x}`,
		"const m = await import(name);":   `cannot have "import(name)`,
		"import {x} from './nowhere.js';": "there is no nowhere.js",
		"import {x} from './b.js';":       "needs itself",
	} {
		_, err := join(map[string][]byte{"app.js": []byte(text), "a.js": nil, "b.js": []byte("import {y} from './app.js';")}, "app.js")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}
