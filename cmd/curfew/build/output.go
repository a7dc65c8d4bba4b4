package build

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// output is the program to be made.
type output struct {
	name string // as given
	path string // absolute
}

// newOutput checks the destination of the program before anything is compiled.
func newOutput(name, suffix string) (*output, error) {
	if name == "" {
		name = "./curfew" + suffix
	}
	path, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	if _, base := filepath.Split(name); base == "" {
		return nil, fmt.Errorf("-o %s: that is a folder; name a file", name)
	}
	if folder, err := os.Stat(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("-o %s: %w", name, err)
	} else if !folder.IsDir() {
		return nil, fmt.Errorf("-o %s: %s is no folder", name, filepath.Dir(path))
	}
	there, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("-o %s: %w", name, err)
	case there.IsDir():
		return nil, fmt.Errorf("-o %s: there is a folder of that name; name a file", name)
	case !there.Mode().IsRegular():
		return nil, fmt.Errorf("-o %s: is no regular file", name)
	case there.Size() > 0 && there.Mode()&0o111 == 0 && suffix == "":
		return nil, fmt.Errorf("-o %s: there is a file of that name that is no program; remove it first", name)
	}
	return &output{name: name, path: path}, nil
}

// make compiles the main module, tries the program, puts it in its place, and describes it. If anything fails, an existing file stays.
func (o *output) make(ctx context.Context, m *mainModule) (made string, err error) {
	// The temporary folder is next to the program, so that the program can be renamed into its place.
	dir, err := os.MkdirTemp(filepath.Dir(o.path), ".curfew-build-")
	if err != nil {
		return "", fmt.Errorf("-o %s: %w", o.name, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, filepath.Base(o.path))
	printed, err := m.tool.run("build", "-mod=mod", "-trimpath", "-buildvcs=false", "-o", file, ".")
	if err != nil {
		return "", fmt.Errorf("the program cannot be built: %w%s", err, printed)
	}
	if made, err = o.try(ctx, m.tool, file); err != nil {
		return "", err
	}
	return made, os.Rename(file, o.path)
}

// patience is how long a program may take to print its version.
const patience = time.Minute

// try asks the program for its version, unless it is for another system. This finds, for instance, two plugins with one name.
func (o *output) try(ctx context.Context, t *goTool, file string) (made string, err error) {
	if !t.native() {
		return fmt.Sprintf("%s: for %s/%s, not tried here", o.name, t.env.GOOS, t.env.GOARCH), nil
	}
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c := exec.CommandContext(limited, file, "version", "--json")
	c.Env, c.WaitDelay = t.environ, time.Second
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	err = c.Run()
	_, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("interrupted while the program was tried: %w", ctx.Err())
	case limited.Err() != nil:
		return "", fmt.Errorf("the program was compiled, but does not say its version within %v, and is removed", patience)
	case err == nil || errors.Is(err, exec.ErrWaitDelay): // a process that it started still has its output open
		return o.describe(stdout.Bytes())
	case !exited || strings.HasPrefix(stderr.String(), otherProcessor):
		why := cmp.Or(firstLine(stderr.String()), err.Error())
		return fmt.Sprintf("%s: not tried: %s", o.name, why), nil // programs cannot be started there
	}
	said := strings.TrimSpace(stderr.String())
	return "", fmt.Errorf("the program was compiled, but does not work, and is removed: %s", strings.TrimSpace(err.Error()+"\n"+said))
}

// otherProcessor begins the complaint of a program that was compiled, with GOAMD64, for other processors than the present one.
const otherProcessor = "This program can only be run on "

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// describe describes the program by the version that it printed.
func (o *output) describe(said []byte) (string, error) {
	var d struct {
		Version, Folder string
		Plugins         []struct{ Name, Package, Version, Folder, Module string }
	}
	if err := json.Unmarshal(said, &d); err != nil {
		return "", fmt.Errorf("the program was compiled, but its version is no JSON, and it is removed: %w", err)
	}
	lines := []string{fmt.Sprintf("%s: curfew %s%s, with these plugins of others:", o.name, d.Version, from(d.Folder))}
	for _, p := range d.Plugins {
		if p.Module == curfew && strings.HasPrefix(p.Package, curfew+"/plugins/") {
			continue
		}
		line := "  " + p.Name + ", " + p.Package + " " + p.Version
		if p.Folder != "" {
			line = "  " + p.Name + ", " + p.Package + from(p.Folder)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n"), nil
}

func from(folder string) string {
	if folder == "" {
		return ""
	}
	return " from " + folder
}
