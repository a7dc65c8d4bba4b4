package policy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/curfewmq/curfew/cmd/curfew/usage"
	"github.com/curfewmq/curfew/plugins/wasm"
)

func buildCommand() command {
	return command{
		name: "build", operands: []string{"[FOLDER]"}, run: runBuild,
		about: "compiles the policy in a folder and checks the module",
		flags: func(f *flags) {
			f.String("lang", "", "the `language`, if the folder does not show it: "+languageNames())
			f.String("o", "", "the output `file`; default: the folder's name with .wasm, in the folder")
		},
		more: "The compiler is the one in PATH, or the one named in the environment: GO, RUSTC, CC, CXX, ZIG, ASC, WAT2WASM.\n",
	}
}

// building is one call of a compiler.
type building struct {
	ctx     context.Context
	program *Program
	dir     string
	source  string // in dir
	out     string // absolute
}

func runBuild(ctx context.Context, p *Program, f *flags) error {
	dir, err := filepath.Abs(f.operand(0, "."))
	if err != nil {
		return err
	}
	l, source, err := recognize(dir, f.text("lang"))
	if err != nil {
		return err
	}
	named := f.text("o")
	if named == "" {
		named = filepath.Join(f.operand(0, "."), filepath.Base(dir)+".wasm")
	}
	out, err := filepath.Abs(named)
	if err != nil {
		return err
	}
	if err := l.make(&building{ctx: ctx, program: p, dir: dir, source: source, out: out}); err != nil {
		return err
	}
	return p.made(named)
}

// made checks the module that was built.
func (p *Program) made(file string) error {
	module, err := readFile(file, maxModule)
	if err != nil {
		return err
	}
	m, err := wasm.Inspect(module)
	if err != nil {
		return fmt.Errorf("%s was made, but no broker would load it: %w", file, err)
	}
	fmt.Fprintf(p.Stdout, "%s: %d bytes, %s, sha256:%s\n", file, m.Size, joined(m.Hooks), m.Digest)
	return nil
}

// recognize returns the language of a project and its source file.
func recognize(dir, wanted string) (*language, string, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, "", err
	}
	if wanted != "" {
		l, err := findLanguage(wanted)
		if err != nil {
			return nil, "", err
		}
		source, err := l.source(dir)
		return l, source, err
	}
	for _, l := range languages() {
		source, err := l.source(dir)
		if err == nil {
			return &l, source, nil
		}
		if !errors.Is(err, errNoSource) {
			return nil, "", err
		}
	}
	return nil, "", fmt.Errorf("there is no policy in %s: no project such as \"curfew policy new\" makes for %s", dir, languageNames())
}

var errNoSource = errors.New("there is no source")

func (l *language) source(dir string) (string, error) {
	for _, pattern := range l.finds {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return "", err
		}
		if len(found) > 1 {
			return "", fmt.Errorf("%s has several files %s: a policy is made of one", dir, pattern)
		}
		if len(found) == 1 {
			return filepath.Rel(dir, found[0])
		}
	}
	return "", fmt.Errorf("%w in %s: %s looks for %s", errNoSource, dir, l.name, strings.Join(l.finds, ", "))
}

// find returns the first of the programs that exists, or the one that an environment variable names.
func (b *building) find(variable, missing string, names ...string) (string, error) {
	if name := usage.Variables(b.program.Environ)[variable]; name != "" {
		program, err := exec.LookPath(name)
		if err != nil {
			return "", fmt.Errorf("%s: %w", variable, err)
		}
		return program, nil
	}
	for _, name := range names {
		if program, err := exec.LookPath(name); err == nil {
			return program, nil
		}
	}
	return "", fmt.Errorf("%s is missing: %s", names[0], missing)
}

// run calls a compiler in the project's folder.
func (b *building) run(environ []string, program string, args ...string) error {
	c := exec.CommandContext(b.ctx, program, args...)
	c.Dir, c.Env = b.dir, append(b.program.Environ, environ...)
	c.Stdout, c.Stderr = b.program.Stderr, b.program.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(program), err)
	}
	return nil
}

// numbered returns a program's names in Debian, which provides several versions.
func numbered(name string) []string {
	names := []string{name}
	for v := 25; v >= 14; v-- {
		names = append(names, fmt.Sprintf("%s-%d", name, v))
	}
	return names
}

func (b *building) linker() (string, error) {
	return b.find("", "apt install lld", numbered("wasm-ld")...)
}

func (b *building) golang() error {
	program, err := b.find("GO", "apt install golang, of version 1.24 or later, or see go.dev/dl", "go")
	if err != nil {
		return err
	}
	return b.run([]string{"GOOS=wasip1", "GOARCH=wasm"}, program,
		"build", "-trimpath", "-buildmode=c-shared", "-ldflags=-s -w", "-o", b.out, ".")
}

func (b *building) c() error { return b.clang("CC", "clang", cFlags()) }

func (b *building) cpp() error { return b.clang("CXX", "clang++", cppFlags()) }

// cFlags are for clang. With bulk memory, copying needs no C library.
func cFlags() []string { return []string{"--target=wasm32", "-O2", "-mbulk-memory"} }

// cppFlags avoid features that need a C++ library.
func cppFlags() []string {
	return append(cFlags(), "-std=c++17", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics", "-fno-c++-static-destructors")
}

// linkFlags put the stack before the data, so that a stack overflow ends the instance instead of overwriting data.
func linkFlags() []string {
	return []string{"--no-entry", "--strip-all", "--stack-first", "-z", "stack-size=4096"}
}

// clang compiles and links in two steps. When clang itself links, it runs any wasm-opt that it finds, which may be too old for the module,
// and looks for the linker of its own version.
func (b *building) clang(variable, name string, flags []string) error {
	const missing = "apt install clang lld"
	compiler, err := b.find(variable, missing, numbered(name)...)
	if err != nil {
		return err
	}
	linker, err := b.linker()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "curfew-policy-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is in the folder for temporary files
	object := filepath.Join(dir, "policy.o")
	if err := b.run(nil, compiler, append(flags, "-c", "-o", object, b.source)...); err != nil {
		return err
	}
	return b.run(nil, linker, append(linkFlags(), "-o", b.out, object)...)
}

// zigFlags work with all versions of Zig. The mode ReleaseSafe has checks: without them an overflow is undefined behaviour.
func zigFlags() []string {
	return []string{"-target", "wasm32-freestanding", "-rdynamic", "-O", "ReleaseSafe", "-fstrip", "--stack", "4096"}
}

// zig lets the compiler write to a temporary folder, because it leaves other files beside the module.
func (b *building) zig() error {
	program, err := b.find("ZIG", "see ziglang.org/download; the variable ZIG names one that is not in PATH", "zig")
	if err != nil {
		return err
	}
	version, err := exec.CommandContext(b.ctx, program, "version").Output()
	if err != nil {
		return fmt.Errorf("%s version: %w", program, err)
	}
	args := []string{"build-exe", b.source, "-fno-entry"}
	if linksLibraries(strings.TrimSpace(string(version))) {
		args = []string{"build-lib", b.source, "-dynamic"}
	}
	dir, err := os.MkdirTemp("", "curfew-policy-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is in the folder for temporary files
	file := filepath.Join(dir, "policy.wasm")
	args = append(append(args, zigFlags()...), "--cache-dir", filepath.Join(dir, "cache"), "-femit-bin="+file)
	if err := b.run(nil, program, args...); err != nil {
		return err
	}
	module, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return os.WriteFile(b.out, module, 0o644)
}

// linksLibraries reports whether a version of Zig makes a module without an entry point as a library. Before 0.12.0 that was the only way;
// since then a library is a module for dynamic linking.
func linksLibraries(version string) bool {
	return strings.HasPrefix(version, "0.11.") || strings.HasPrefix(version, "0.12.0-dev.")
}

func (b *building) assemblyScript() error {
	own := filepath.Join(b.dir, "node_modules", ".bin", "asc")
	program, err := b.find("ASC", "run npm install in "+b.dir+", which takes the Debian packages nodejs and npm", own, "asc")
	if err != nil {
		return errors.New(strings.Replace(err.Error(), own, "asc, the compiler of the npm package assemblyscript,", 1))
	}
	return b.run(nil, program, b.source, "-O3", "--use", "abort=", "-o", b.out)
}

func (b *building) wat() error {
	program, err := b.find("WAT2WASM", "apt install wabt", "wat2wasm")
	if err != nil {
		return err
	}
	return b.run(nil, program, "-o", b.out, b.source)
}

func (b *building) rust() error {
	program, ownLinker, err := b.rustc()
	if err != nil {
		return err
	}
	edition, err := b.edition()
	if err != nil {
		return err
	}
	args := []string{
		"--edition", edition, "--crate-type", "cdylib", "--target", rustTarget, "-C", "opt-level=3", "-C", "panic=abort", "-C", "lto",
		"-C", "strip=symbols", "-C", "link-arg=-zstack-size=4096", "-o", b.out, b.source,
	}
	if !ownLinker {
		linker, err := b.linker()
		if err != nil {
			return err
		}
		args = append(args, "-C", "linker="+linker)
	}
	return b.run(nil, program, args...)
}

// edition returns the edition in Cargo.toml.
func (b *building) edition() (string, error) {
	manifest, err := os.ReadFile(filepath.Join(b.dir, "Cargo.toml"))
	if errors.Is(err, fs.ErrNotExist) {
		return "2021", nil
	}
	if found := rustEdition.FindSubmatch(manifest); found != nil {
		return string(found[1]), err
	}
	if sharedEdition.Match(manifest) {
		return "", errors.New("edition: it is the workspace's; name it in Cargo.toml")
	}
	return "2015", err // Cargo's default
}

var sharedEdition = regexp.MustCompile(`(?m)^\s*edition(\.workspace|\s*=\s*\{)`)

var rustEdition = regexp.MustCompile(`(?m)^\s*edition\s*=\s*["']([^"'\n]*)["']`)

const rustTarget = "wasm32-unknown-unknown"

// rustc looks for a compiler that has Rust's library for WebAssembly. There may be two, Debian's and rustup's, of which only the
// latter has a linker.
func (b *building) rustc() (program string, ownLinker bool, err error) {
	const missing = "apt install rustc libstd-rust-dev-wasm32 lld, or rustup target add " + rustTarget
	if program, err = b.find("RUSTC", missing, "rustc"); err != nil {
		return "", false, err
	}
	candidates := []string{program}
	if usage.Variables(b.program.Environ)["RUSTC"] == "" {
		candidates = append(candidates, "/usr/bin/rustc")
	}
	for _, c := range candidates {
		root, err := exec.CommandContext(b.ctx, c, "--print", "sysroot").Output()
		if err != nil {
			continue
		}
		library := filepath.Join(strings.TrimSpace(string(root)), "lib", "rustlib")
		if _, err := os.Stat(filepath.Join(library, rustTarget, "lib")); err != nil {
			continue
		}
		linkers, err := filepath.Glob(filepath.Join(library, "*", "bin", "rust-lld"))
		return c, err == nil && len(linkers) > 0, nil
	}
	return "", false, fmt.Errorf("%s has no library for WebAssembly: %s", program, missing)
}
