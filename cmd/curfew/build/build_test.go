package build

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

// A package below the root of its module at a version, a module in a folder with several plugins, and a package of curfew itself.
func TestBuild(t *testing.T) {
	p := newPlace(t)
	content := files{"sdk/example/heavy/heavy.go": pluginFile("heavy")}
	maps.Copy(content, stub)
	p.folder("src", content)
	p.publish("example.com/night", "v1.2.0", files{
		"go.mod": moduleFile("example.com/night", "v0.1.0"), "shift/shift.go": pluginFile("shift"),
	})
	p.folder("my lights", files{
		"go.mod":    moduleFile("example.com/lights/v2", "v0.0.0") + "\nreplace " + curfew + " => /nowhere\n",
		"lights.go": "package lights\n\nimport \"" + curfew + "/sdk/hook\"\n\nvar Factories = []hook.Factory{hook.NewFactory(\"lamp\"), hook.NewFactory(\"lantern\")}\n",
	})
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	r := p.build("--curfew", "src", "--with", "example.com/night/shift@v1.2.0", "--with", "example.com/lights/v2=./my lights",
		"--with", curfew+"/sdk/example/heavy", "-o", "mine")
	r.want(t, 0, "mine: curfew 9.9, with these plugins of others:\n"+
		"  shift, example.com/night/shift \n  lamp, example.com/lights/v2 \n  lantern, example.com/lights/v2 \n  heavy, "+curfew+"/sdk/example/heavy \n", "")
	leavesNothing(t)
	if names := left(t); names != "mine my lights src" {
		t.Errorf("it left %s", names)
	}
	out, err := exec.Command("go", "version", "-m", "mine").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"example.com/night\tv1.2.0\t", "=>\t" + here + "/my lights\t", "CGO_ENABLED=0", "-trimpath=true"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("got %s, want in it %q", out, want)
		}
	}
}

// Without a version, a module's latest is taken. Curfew can be a version, too.
func TestVersions(t *testing.T) {
	p := newPlace(t)
	p.publish(curfew, "v0.3.0", stub)
	p.publish(curfew, "v0.4.0", stub)
	for _, v := range []string{"v1.0.0", "v1.1.0"} {
		p.publish("example.com/night", v, files{"go.mod": moduleFile("example.com/night", "v0.3.0"), "night.go": pluginFile("night")})
	}
	p.build("--curfew", "@v0.3.0", "--with", "example.com/night").want(t, 0, "./curfew: curfew 9.9, with these plugins of others:\n  night, example.com/night \n", "")
	out, err := exec.Command("go", "version", "-m", "curfew").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{curfew + "\tv0.3.0\t", "example.com/night\tv1.1.0\t"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("got %s, want in it %q", out, want)
		}
	}
}

// Modules of the workspace are read from their folders, and curfew too if it is one of them.
func TestWorkspace(t *testing.T) {
	p := newPlace(t)
	p.folder("src", stub)
	p.folder("night", files{"go.mod": moduleFile("example.com/night", "v0.1.0"), "night.go": pluginFile("night")})
	p.folder(".", files{"go.work": "go 1.21\n\nuse (\n\t./night\n\t./src\n)\n"})
	p.build("--with", "example.com/night").want(t, 0, "./curfew: curfew 9.9, with these plugins of others:\n  night, example.com/night \n",
		"curfew build: modules of the workspace "+must(filepath.Abs("go.work"))+" are read from their folders\n")
	p.environ = append(p.environ, "GOWORK=off")
	p.build("--with", "example.com/night").want(t, 1, "", "curfew build: it is not known which curfew to build")
}

// A second package of a module in a folder needs no folder of its own. The module may have a version, which others require.
func TestPackagesOfAFolder(t *testing.T) {
	p := newPlace(t)
	p.folder("src", stub)
	p.folder("night", files{"go.mod": moduleFile("example.com/night", "v0.1.0"), "night.go": pluginFile("night"), "shift/shift.go": pluginFile("shift")})
	p.publish("example.com/owl", "v1.0.0", files{
		"go.mod": moduleFile("example.com/owl", "v0.1.0") + "\nrequire example.com/night v1.3.0\n",
		"owl.go": strings.Replace(pluginFile("owl"), "import", "import _ \"example.com/night\"\nimport", 1),
	})
	p.environ = append(p.environ, "GOFLAGS=-mod=vendor -modcacherw", "GO111MODULE=off") // which are about other modules
	p.build("--curfew", "src", "--with", "example.com/night@v1.5.0=night", "--with", "example.com/night/shift", "--with", "example.com/owl@v1.0.0").want(t, 0,
		"./curfew: curfew 9.9, with these plugins of others:\n  night, example.com/night \n  shift, example.com/night/shift \n  owl, example.com/owl \n", "")
	out, err := exec.Command("go", "version", "-m", "curfew").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\tdep\texample.com/night\tv1.5.0\n") {
		t.Errorf("got %s, %v", out, err)
	}
}

// The last line of a go.sum may lack a line break: the sums of another folder come after it.
func TestSumsWithoutAnEnd(t *testing.T) {
	p := newPlace(t)
	p.folder("src", stub)
	p.publish("example.com/a", "v1.0.0", files{"go.mod": "module example.com/a\n\ngo 1.21\n", "a.go": "package a\n"})
	for _, name := range []string{"night", "owl"} {
		p.folder(name, files{
			"go.mod":     moduleFile("example.com/"+name, "v0.1.0") + "\nrequire example.com/a v1.0.0\n",
			name + ".go": strings.Replace(pluginFile(name), "import", "import _ \"example.com/a\"\nimport", 1),
			"go.sum":     "example.com/" + name + " v1.0.0 h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
		})
	}
	p.build("--curfew", "src", "--with", "example.com/night=night", "--with", "example.com/owl=owl").want(t, 0,
		"./curfew: curfew 9.9, with these plugins of others:\n  night, example.com/night \n  owl, example.com/owl \n", "")
}

// A build that is interrupted before or while the program is tried has failed: an untried program does not replace another one.
func TestInterruptedTrial(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := &output{name: "x"}
	if made, err := o.try(ctx, &goTool{}, "no-such-program"); made != "" || !errors.Is(err, context.Canceled) {
		t.Errorf("got %q, %v", made, err)
	}
}

// A program for better processors than the present one, for instance by GOAMD64, is treated like one for another system.
func TestOtherProcessor(t *testing.T) {
	p := newPlace(t)
	p.folder("src", stub)
	p.folder("new", files{
		"go.mod": moduleFile("example.com/new", "v0.1.0"),
		"new.go": strings.Replace(pluginFile("new"), "\n\nvar", "\nimport \"os\"\n\nfunc init() { os.Stderr.WriteString(\"This program can only be run on AMD64 processors with v4 microarchitecture support.\\n\"); os.Exit(1) }\n\nvar", 1),
	})
	p.build("--curfew", "src", "--with", "example.com/new=new").want(t, 0,
		"./curfew: not tried: This program can only be run on AMD64 processors with v4 microarchitecture support.\n", "")
}

// The environment chooses the system. The program does nothing, so that little has to be compiled for that system.
func TestCrossBuild(t *testing.T) {
	p := newPlace(t)
	p.folder("src", stub)
	p.folder("src/cmd/curfew/app", files{"app.go": `package app

import "github.com/curfewmq/curfew/sdk/hook"

func From(_ string, fs ...hook.Factory) []hook.Factory { return fs }

func Main(...hook.Factory) {}
`})
	p.folder("night", files{"go.mod": moduleFile("example.com/night", "v0.1.0"), "night.go": pluginFile("night")})
	foreign := "darwin" // for which .ci/run has compiled the standard library before
	if runtime.GOOS == foreign {
		foreign = "linux"
	}
	p.environ = append(p.environ, "GOOS="+foreign, "GOARCH="+runtime.GOARCH)
	p.build("--curfew", "src", "--with", "example.com/night=night").want(t, 0, "./curfew: for "+foreign+"/"+runtime.GOARCH+", not tried here\n", "")
}

// must returns a result that cannot fail in an existing working folder.
func must(s string, _ error) string { return s }

func TestKeep(t *testing.T) {
	p := newPlace(t)
	p.folder("src", stub)
	p.folder("night", files{"go.mod": moduleFile("example.com/night", "v0.1.0"), "night.go": pluginFile("night")})
	r := p.build("--curfew", "src", "--with", "example.com/night=night", "--keep")
	_, dir, found := strings.Cut(r.stderr, "curfew build: the main module is in ")
	if r.status != 0 || !found {
		t.Fatalf("got %+v", r)
	}
	dir = strings.TrimSpace(dir)
	for _, name := range []string{"go.mod", "main.go"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

// A failure is reported with its reason, and the existing program stays.
func TestFailures(t *testing.T) {
	p := newPlace(t)
	p.folder("src", stub)
	p.publish(curfew, "v0.1.0", stub)
	p.publish(curfew, "v0.3.0", stub)
	p.publish("example.com/new", "v1.0.0", files{"go.mod": moduleFile("example.com/new", "v0.3.0"), "new.go": pluginFile("new")})
	for name, text := range map[string]string{
		"none":     "package none\n\nfunc (x) Factory() {}\n\ntype x struct{ Factories int }\n",
		"function": "package function\n\nfunc Factory() {}\n",
		"constant": "package constant\n\nconst Factories = 1\n",
		"program":  "package main\n\nvar Factory = 1\n",
		"wrong":    "package wrong\n\nvar Factory = 1\n",
		"broken":   "package broken\n\nvar Factory = \n",
		"first":    strings.Replace(pluginFile("first"), `"first"`, `"twin"`, 1),
		"second":   strings.Replace(pluginFile("second"), `"second"`, `"twin"`, 1),
		"mute":     strings.Replace(pluginFile("mute"), "\n\nvar", "\nimport \"os\"\n\nfunc init() { os.Exit(3) }\n\nvar", 1),
		"other":    "package other\n\nimport _ \"example.com/other/missing\"\n\nvar Factory = 1\n",
	} {
		p.folder(name, files{"go.mod": moduleFile("example.com/"+name, "v0.1.0"), name + ".go": text, "below/below.go": pluginFile("below")})
	}
	p.folder("late", files{"go.mod": moduleFile("example.com/late", "v0.3.0"), "late.go": pluginFile("late")})
	if err := os.WriteFile("curfew", []byte("the one before"), 0o700); err != nil { //nolint:gosec // it is a program
		t.Fatal(err)
	}
	before := left(t)
	const want = `a plugin's package has "var Factory = hook.NewFactory(...)", or "var Factories" with a list of them`
	for _, tt := range []struct {
		name, args string
		stderr     string
	}{
		{"no plugin", "--with example.com/none=none", "curfew build: the package example.com/none exports no plugin: " + want},
		{"a function", "--with example.com/function=function", "curfew build: the package example.com/function: its Factory is a function and no variable; " + want},
		{"a constant", "--with example.com/constant=constant", "curfew build: the package example.com/constant: its Factories is a constant and no variable; " + want},
		{"several", "--with example.com/none=none --with example.com/program=program", "exports no plugin: " + want + "\ncurfew build: the package example.com/program is a program"},
		{"wrong type", "--with example.com/wrong=wrong", "cannot use plugin1.Factory (variable of type int) as hook.Factory value"},
		{"broken", "--with example.com/broken=broken", "curfew build: the package example.com/broken: "},
		{"incomplete", "--with example.com/other=other", "example.com/other/missing"},
		{"fails and says nothing", "--with example.com/mute=mute", "curfew build: the program was compiled, but does not work, and is removed: exit status 3\n"},
		{"one name", "--with example.com/first=first --with example.com/second=second", "curfew build: curfew: two plugins have the name twin"},
		{"Go's own", "--with fmt=none", "--with fmt: the module in "},
		{"not in it", "--with example.com/none/x/y=none", "is example.com/none, which has no such package"},
		{"another module", "--with example.com/nome=none", "curfew build: --with example.com/nome: the module in "},
		{"no module", "--with example.com/none/below=none/below", "; its module is in "},
		{"no folder", "--with example.com/none=nowhere", "curfew build: --with example.com/none: "},
		{"two folders", "--with example.com/none=none --with example.com/none/below=./none/../first", "which has no such package"},
		{"a folder and a version", "--with example.com/none=none --with example.com/none/below@v1.0.0", "is in "},
		{"curfew's folder", "--with github.com/curfewmq/curf=src", "which has no such package"},
		{"no such version", "--with example.com/new@v9.0.0", "go: example.com/new@v9.0.0: "},
		{"no such module", "--with example.com/newer", "go: "},
		{"a later curfew", "--curfew @v0.1.0 --with example.com/new@v1.0.0", "curfew build: example.com/new@v1.0.0 needs curfew v0.3.0, and v0.1.0 is to be built: use an earlier version of it, or --curfew @v0.3.0"},
		{"a folder that needs a later curfew", "--curfew @v0.1.0 --with example.com/late=late", "curfew build: example.com/late@v0.0.0-00010101000000-000000000000 needs curfew v0.3.0, and v0.1.0 is to be built"},
		{"no such curfew", "--curfew @v0.2.0 --with example.com/new", "curfew build: curfew itself: go get: exit status 1; --curfew names another version, or a folder"},
		{"another curfew", "--curfew none --with example.com/new", "curfew build: --curfew: the module in "},
		{"output is a folder", "--with example.com/new -o none", "curfew build: -o none: there is a folder of that name; name a file"},
		{"output is a folder that is not there", "--with example.com/new -o nowhere/", "curfew build: -o nowhere/: that is a folder; name a file"},
		{"output is in no folder", "--with example.com/new -o nowhere/x", "curfew build: -o nowhere/x: stat "},
		{"output is below a file", "--with example.com/new -o none/go.mod/x", "curfew build: -o none/go.mod/x: "},
		{"output is a source", "--with example.com/new -o none/none.go", "curfew build: -o none/none.go: there is a file of that name that is no program; remove it first"},
		{"output is a device", "--with example.com/new -o /dev/null", "curfew build: -o /dev/null: is no regular file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := strings.Fields(tt.args)
			if args[0] != "--curfew" {
				args = append([]string{"--curfew", "src"}, args...)
			}
			p.build(args...).want(t, 1, "", tt.stderr)
			leavesNothing(t)
			if after := left(t); after != before {
				t.Errorf("it left %s, before there was %s", after, before)
			}
			if b, err := os.ReadFile("curfew"); err != nil || string(b) != "the one before" {
				t.Errorf("the program that was there is %.40q, %v", b, err)
			}
		})
	}
}

func TestNoToolchain(t *testing.T) {
	p := newPlace(t)
	p.environ = append(p.environ, "GO=no-such-go")
	p.build("--with", "example.com/x").want(t, 1, "",
		"curfew build: there is no Go toolchain: install Go 1.26 or later, see https://go.dev/dl, or name its program with the variable GO (")
}

func TestMisuse(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"nothing", nil, "--with is missing: name a package with a plugin, such as --with example.com/nightshift@v1.2.0"},
		{"operand", []string{"--with", "example.com/x", "y"}, `unexpected argument "y"`},
		{"unknown flag", []string{"--wiht", "x"}, "unknown flag --wiht"},
		{"twice", []string{"--with", "a.b/x", "--with", "a.b/x@v1"}, `the flag --with does not take "a.b/x@v1": the package a.b/x is there twice`},
		{"empty", []string{"--with="}, `the flag --with does not take "": it is empty; accepted is a package, such as example.com/nightshift@v1.2.0`},
		{"folder", []string{"--with", "../x"}, `the flag --with does not take "../x": "../x" is a folder and no package; put the import path before it, as in example.com/nightshift=../x`},
		{"absolute", []string{"--with", "/x"}, `"/x" is a folder and no package`},
		{"dash", []string{"--with", "-modfile@v1"}, `the package "-modfile" begins with a dash`},
		{"space", []string{"--with", "a.b/x y"}, `"a.b/x y" is no import path`},
		{"quote", []string{"--with", `a.b/x"y`}, `"a.b/x\"y" is no import path`},
		{"newline", []string{"--with", "a.b/x\nimport"}, `"a.b/x\nimport" is no import path`},
		{"dots", []string{"--with", "a.b/../x"}, `"a.b/../x" is no import path`},
		{"pattern", []string{"--with", "a.b/x...y"}, `"a.b/x...y" is no import path`},
		{"program", []string{"--with", "curfew/x=../x"}, "the name curfew is that of the program; a plugin's module needs another one"},
		{"empty part", []string{"--with", "a.b//x"}, `"a.b//x" is no import path`},
		{"no host", []string{"--with", "x@v1"}, `"x" does not begin with a host such as example.com`},
		{"no package", []string{"--with", "@v1"}, "the package is missing"},
		{"no version", []string{"--with", "a.b/x@"}, "the version after @ is empty"},
		{"version none", []string{"--with", "a.b/x@none"}, `the version "none" is not accepted`},
		{"hostile version", []string{"--with", "a.b/x@-v1"}, `the version "-v1" is not accepted`},
		{"two versions", []string{"--with", "a.b/x@v1@v2"}, `the version "v1@v2" is not accepted`},
		{"branch and folder", []string{"--with", "a.b/x@main=../x"}, `the version "main" is not accepted beside a folder`},
		{"no folder", []string{"--with", "a.b/x="}, "the folder after = is empty"},
		{"hostile folder", []string{"--with", "a.b/x=../x\nreplace"}, `the folder "../x\nreplace" has a control character`},
		{"curfew's package", []string{"--with", curfew + "/sdk/example/heavy@v1.0.0"}, "the flag --curfew says where packages of curfew come from"},
		{"curfew's version", []string{"--curfew", "v0.1.0"}, "a version has an @ before it: @v0.1.0"},
		{"curfew's empty version", []string{"--curfew", "@"}, "the version after @ is empty"},
		{"curfew's hostile version", []string{"--curfew", "@ v1"}, `the version " v1" is not accepted`},
		{"curfew's hostile folder", []string{"--curfew", "a\x00b"}, "has a control character"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &place{t: t}
			r := p.build(tt.args...)
			if r.status != 2 || r.stdout != "" || !strings.HasPrefix(r.stderr, "curfew build: ") || !strings.Contains(r.stderr, tt.want) {
				t.Errorf("got %+v, want %q", r, tt.want)
			}
		})
	}
}

// How the running program was built determines which curfew is built.
func TestOrigin(t *testing.T) {
	folder := t.TempDir()
	writeFile(t, filepath.Join(folder, "go.mod"), "module "+curfew+"\n")
	main := func(version string) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Path: curfew, Version: version}}
	}
	dep := func(d debug.Module) *debug.BuildInfo {
		d.Path = curfew
		return &debug.BuildInfo{Main: debug.Module{Path: "curfew", Version: "(devel)"}, Deps: []*debug.Module{{Path: "example.com/x"}, &d}}
	}
	for _, tt := range []struct {
		name            string
		running         *debug.BuildInfo
		version, folder string
	}{
		{"unknown", nil, "", ""},
		{"release", main("v1.2.0"), "v1.2.0", ""},
		{"commit", main("v0.0.0-20261122193758-1a7bc87bb5f0"), "v0.0.0-20261122193758-1a7bc87bb5f0", ""},
		{"changed", main("v1.2.0+dirty"), "", ""},
		{"changed commit", main("v0.0.0-20261122193758-1a7bc87bb5f0+dirty"), "", ""},
		{"folder", main("(devel)"), "", ""},
		{"built from a version", dep(debug.Module{Version: "v1.2.0"}), "v1.2.0", ""},
		{"built from a folder", dep(debug.Module{Version: "v0.0.0", Replace: &debug.Module{Path: folder}}), "", folder},
		{"built from a folder that is gone", dep(debug.Module{Version: "v0.0.0", Replace: &debug.Module{Path: folder + "x"}}), "", ""},
		{"built from a fork", dep(debug.Module{Version: "v1.2.0", Replace: &debug.Module{Path: "example.com/fork", Version: "v1.0.0"}}), "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if version, folder := origin(tt.running); version != tt.version || folder != tt.folder {
				t.Errorf("got %q, %q, want %q, %q", version, folder, tt.version, tt.folder)
			}
		})
	}
}

func TestVersionsOfFolders(t *testing.T) {
	for module, want := range map[string]string{
		"example.com/x": "v0.0.0-00010101000000-000000000000", "example.com/x/v2": "v2.0.0-00010101000000-000000000000",
		"example.com/v2x": "v0.0.0-00010101000000-000000000000", "gopkg.in/x.v3": "v3.0.0-00010101000000-000000000000", "mod": "v0.0.0-00010101000000-000000000000",
	} {
		if got := absent(module); got != want {
			t.Errorf("%s: got %s, want %s", module, got, want)
		}
	}
}
