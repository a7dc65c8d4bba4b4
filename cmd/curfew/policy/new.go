package policy

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/sdk"
)

//go:embed templates
var templates embed.FS

// language is a language in which projects can be made.
type language struct {
	name  string
	alias string            // another name for --lang, if any
	build string            // the command that makes NAME.wasm, for the README
	tools string            // the tools that the command needs, for the README
	first string            // a command to run in the folder before the first build, if there is one
	fuel  string            // the flag for fuel that the broker needs, if any
	hold  string            // holds a message for a minute, for the README
	files map[string]string // templates of a project's files by their paths in it
	sdk   map[string]string // folders and files of the SDK, likewise
	finds []string          // patterns for the source file, of which a project has one
	make  func(b *building) error
}

func languages() []language {
	return []language{
		{
			name:  "go",
			build: "GOOS=wasip1 GOARCH=wasm go build -trimpath -buildmode=c-shared -ldflags='-s -w' -o NAME.wasm .",
			tools: "which takes Go 1.24 or later. The SDK is in `curfew/`; the policy's own tests run with `go test`.\n" +
				"A Go program has a garbage collector: let its calls take longer with `--fuel large`.",
			fuel: " --fuel large",
			hold: "m.Hold(now + 60_000)",
			files: map[string]string{
				"main.go": "go/main.go.txt", "main_test.go": "go/main_test.go.txt", "go.mod": "go/go.mod.txt", "curfew/go.mod": "go/curfew.mod.txt",
			},
			sdk:   map[string]string{"curfew/sdk/go/policy": "go/policy", "curfew/sdk/abi": "abi"},
			finds: []string{"go.mod"},
			make:  (*building).golang,
		},
		{
			name: "rust",
			build: "rustc --edition 2021 --crate-type cdylib --target wasm32-unknown-unknown -C opt-level=3 -C panic=abort -C lto \\\n" +
				"      -C strip=symbols -C link-arg=-zstack-size=4096 -o NAME.wasm src/lib.rs",
			tools: "which takes Rust 1.63 or later with its library for WebAssembly: `apt install rustc libstd-rust-dev-wasm32 lld`, where the\n" +
				"linker has to be named with `-C linker=wasm-ld`, or `rustup target add wasm32-unknown-unknown`. The SDK is `src/policy.rs`,\n" +
				"and `src/testing.rs` for the policy's own tests, which run with `cargo test` (`apt install cargo`).",
			hold:  "m.hold(now + 60_000);",
			files: map[string]string{"src/lib.rs": "rust/lib.rs", "Cargo.toml": "rust/Cargo.toml.txt"},
			sdk:   map[string]string{"src/policy.rs": "rust/policy.rs", "src/testing.rs": "rust/testing.rs"},
			finds: []string{"src/lib.rs"},
			make:  (*building).rust,
		},
		{
			name:  "c",
			build: "clang " + strings.Join(cFlags(), " ") + " -c NAME.c\n    wasm-ld " + strings.Join(linkFlags(), " ") + " -o NAME.wasm NAME.o",
			tools: "which takes clang and its linker for WebAssembly: `apt install clang lld`. The SDK is `policy.h`.",
			hold:  "policy_hold(m, now + 60000);",
			files: map[string]string{"NAME.c": "c/policy.c.txt"},
			sdk:   map[string]string{"policy.h": "c/policy.h"},
			finds: []string{"*.c"},
			make:  (*building).c,
		},
		{
			name:  "c++",
			alias: "cpp",
			build: "clang++ " + strings.Join(cppFlags(), " ") + " -c NAME.cpp\n    wasm-ld " + strings.Join(linkFlags(), " ") + " -o NAME.wasm NAME.o",
			tools: "which takes clang and its linker for WebAssembly: `apt install clang lld`. The SDK is `policy.hpp` and `policy.h`.\n" +
				"There is no C++ library, no exceptions and no RTTI. C++20 and later compile as well.",
			hold:  "m.hold(now + 60000);",
			files: map[string]string{"NAME.cpp": "cpp/policy.cpp.txt"},
			sdk:   map[string]string{"policy.h": "c/policy.h", "policy.hpp": "cpp/policy.hpp"},
			finds: []string{"*.cpp", "*.cc", "*.cxx"},
			make:  (*building).cpp,
		},
		{
			name:  "zig",
			build: "zig build-exe src/main.zig -fno-entry " + strings.Join(zigFlags(), " ") + " -femit-bin=NAME.wasm",
			tools: "which takes Zig 0.12 or later (ziglang.org/download); with Zig 0.11 it is `zig build-lib -dynamic` without `-fno-entry`.\n" +
				"The SDK is `src/policy.zig`; the policy's own tests run with `zig test src/main.zig`.",
			hold:  "m.hold(now + 60_000);",
			files: map[string]string{"src/main.zig": "zig/main.zig"},
			sdk:   map[string]string{"src/policy.zig": "zig/policy.zig"},
			finds: []string{"src/main.zig"},
			make:  (*building).zig,
		},
		{
			name:  "assemblyscript",
			build: "npx asc assembly/index.ts -O3 --use abort= -o NAME.wasm",
			first: "npm install",
			tools: "which takes Node.js and the compiler: `apt install nodejs npm`, then `npm install` in this folder. The SDK is `assembly/policy.ts`.",
			hold:  "m.hold(now + 60000);",
			files: map[string]string{
				"assembly/index.ts": "assemblyscript/index.ts", "package.json": "assemblyscript/package.json.txt", "tsconfig.json": "assemblyscript/tsconfig.json",
			},
			sdk:   map[string]string{"assembly/policy.ts": "assemblyscript/policy.ts"},
			finds: []string{"assembly/index.ts"},
			make:  (*building).assemblyScript,
		},
		{
			name:  "wat",
			build: "wat2wasm -o NAME.wasm NAME.wat",
			tools: "which takes the WebAssembly Binary Toolkit: `apt install wabt`. WAT needs no SDK.",
			hold:  "(import \"policy_v1\" \"hold\" (func $hold (param i32 i64)))` with `(call $hold (i32.const 0) (i64.add (local.get $now) (i64.const 60000)))",
			files: map[string]string{"NAME.wat": "wat/policy.wat"},
			finds: []string{"*.wat"},
			make:  (*building).wat,
		},
	}
}

func languageNames() string {
	var names []string
	for _, l := range languages() {
		names = append(names, l.name)
	}
	return strings.Join(names, ", ")
}

func findLanguage(name string) (*language, error) {
	for _, l := range languages() {
		if name != "" && (l.name == name || l.alias == name) {
			return &l, nil
		}
	}
	if name == "" {
		return nil, misused("--lang is missing: name one of %s", languageNames())
	}
	return nil, misused("--lang %s: there are %s", name, languageNames())
}

func newCommand() command {
	return command{
		name: "new", operands: []string{"NAME"}, offline: runNew,
		about: "creates a folder with a policy that builds, to start from",
		flags: func(f *flags) { f.String("lang", "", "the `language`: "+languageNames()) },
		more:  "The folder contains everything the policy is built from, including the SDK: nothing is downloaded.\n",
	}
}

// validName matches the possible names of policies.
var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

func runNew(p *Program, f *flags) error {
	l, err := findLanguage(f.text("lang"))
	if err != nil {
		return err
	}
	dir := f.operand(0, "")
	name := filepath.Base(dir)
	if !validName.MatchString(name) {
		return misused("the name %q is not accepted: 1 to 64 lower-case letters, digits, - and _, the first a letter or digit", name)
	}
	if err := l.project(dir, name); err != nil {
		return err
	}
	p.nextSteps(l, dir, name)
	return nil
}

// nextSteps prints how to continue with a project.
func (p *Program) nextSteps(l *language, dir, name string) {
	steps := []string{
		"cd " + dir,
		"curfew policy build",
		"curfew policy test " + name + ".wasm --trace trace.ndjson" + l.fuel,
		"curfew policy load " + name + " " + name + ".wasm" + l.fuel,
	}
	if l.first != "" {
		steps = slices.Insert(steps, 1, l.first)
	}
	fmt.Fprintf(p.Stdout, "%s is made. Next:\n\n  %s\n\nSee README.md there.\n", dir, strings.Join(steps, "\n  "))
}

// project writes the files of a project into a new or empty folder.
func (l *language) project(dir, name string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	there, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(there) > 0 {
		return fmt.Errorf("%s is there already, and not empty", dir)
	}
	tools := strings.NewReplacer("FUEL", l.fuel, "BUILD", l.build, "TOOLS", l.tools, "HOLD", l.hold)
	fill := func(text string) string { return strings.ReplaceAll(tools.Replace(text), "NAME", name) }
	files := map[string]string{"README.md": "common/README.md", "trace.ndjson": "common/trace.ndjson", ".gitignore": "common/gitignore"}
	maps.Copy(files, l.files)
	var errs []error
	for to, from := range files {
		text, err := templates.ReadFile(path.Join("templates", from))
		errs = append(errs, err, write(filepath.Join(dir, strings.ReplaceAll(to, "NAME", name)), fill(string(text))))
	}
	for to, from := range l.sdk {
		errs = append(errs, copyTree(filepath.Join(dir, to), from))
	}
	return errors.Join(errs...)
}

// copyTree copies a folder or a file of the SDKs.
func copyTree(to, from string) error {
	return fs.WalkDir(sdk.Sources, from, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := sdk.Sources.ReadFile(name)
		if err != nil {
			return err
		}
		return write(filepath.Join(to, strings.TrimPrefix(name, from)), string(text))
	})
}

func write(file, text string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o644)
}
