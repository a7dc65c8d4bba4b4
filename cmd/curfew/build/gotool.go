package build

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/curfewmq/curfew/cmd/curfew/usage"
)

// goTool runs Go's tool in the folder of the main module.
type goTool struct {
	ctx     context.Context
	program string
	environ []string
	stderr  io.Writer // the tool's standard error: its downloads and errors
	dir     string    // "" = the working folder
	env     goEnv
}

// goEnv is the tool's own environment, in the working folder.
type goEnv struct{ GOOS, GOARCH, GOHOSTOS, GOHOSTARCH, GOEXE, GOWORK string }

// goTool finds Go's tool and reads its environment.
func (p *Program) goTool(ctx context.Context) (*goTool, error) {
	variables := usage.Variables(p.Environ)
	name := variables["GO"]
	if name == "" {
		name = "go"
	}
	program, err := exec.LookPath(name)
	if err == nil {
		program, err = filepath.Abs(program) // it will be called in another folder
	}
	if err != nil {
		return nil, fmt.Errorf("there is no Go toolchain: install Go 1.26 or later, see https://go.dev/dl, or name its program with the variable GO (%w)", err)
	}
	t := &goTool{ctx: ctx, program: program, environ: p.Environ, stderr: p.Stderr}
	if _, given := variables["CGO_ENABLED"]; !given {
		t.environ = append(slices.Clip(t.environ), "CGO_ENABLED=0") // as in releases: one file for any system with the kernel
	}
	if err := t.decode(&t.env, "env", "-json", "GOOS", "GOARCH", "GOHOSTOS", "GOHOSTARCH", "GOEXE", "GOWORK"); err != nil {
		return nil, err
	}
	// The main module is outside of any workspace. The folders of the workspace's modules are copied to it.
	t.environ = append(slices.Clip(t.environ), "GOWORK=off", "GO111MODULE=on")
	return t, nil
}

// native reports whether the program can run here.
func (t *goTool) native() bool {
	return t.env.GOOS == t.env.GOHOSTOS && t.env.GOARCH == t.env.GOHOSTARCH
}

// run calls the tool. The tool's errors are passed on to standard error as they come.
func (t *goTool) run(args ...string) (stdout []byte, err error) {
	c := exec.CommandContext(t.ctx, t.program, args...)
	c.Dir, c.Env, c.Stderr = t.dir, t.environ, t.stderr
	var out bytes.Buffer
	c.Stdout = &out
	// If it is interrupted, the tool removes its temporary files.
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGINT) }
	c.WaitDelay = 10 * time.Second
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("go %s: %w", args[0], err)
	}
	return out.Bytes(), nil
}

// decode calls the tool and decodes its JSON output.
func (t *goTool) decode(into any, args ...string) error {
	out, err := t.run(args...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, into); err != nil {
		return fmt.Errorf("go %s printed no such JSON: %w", strings.Join(args, " "), err)
	}
	return nil
}

func (t *goTool) moduleIn(folder string) (path string, err error) {
	file := filepath.Join(folder, "go.mod")
	if _, err := os.Stat(file); err != nil {
		return "", fmt.Errorf("%s is no folder of a module: %w%s", folder, err, moduleAbove(folder))
	}
	var m struct{ Module struct{ Path string } }
	if err := t.decode(&m, "mod", "edit", "-json", file); err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	if m.Module.Path == "" {
		return "", fmt.Errorf("%s names no module", file)
	}
	return m.Module.Path, nil
}

// moduleAbove returns a hint to the module that contains a folder.
func moduleAbove(folder string) string {
	for dir := filepath.Dir(folder); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return "; its module is in " + dir + ": name that folder"
		}
	}
	return ""
}

// workspace returns the folders of the workspace in force in the working folder, by module.
func (t *goTool) workspace() (map[string]string, error) {
	if t.env.GOWORK == "" || t.env.GOWORK == "off" {
		return nil, nil
	}
	var w struct{ Use []struct{ DiskPath string } }
	if err := t.decode(&w, "work", "edit", "-json", t.env.GOWORK); err != nil {
		return nil, err
	}
	fmt.Fprintf(t.stderr, "curfew build: modules of the workspace %s are read from their folders\n", t.env.GOWORK)
	folders := make(map[string]string)
	for _, u := range w.Use {
		dir := u.DiskPath
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(filepath.Dir(t.env.GOWORK), dir)
		}
		path, err := t.moduleIn(dir)
		if err != nil {
			return nil, fmt.Errorf("workspace %s: %w", t.env.GOWORK, err)
		}
		folders[path] = dir
	}
	return folders, nil
}
