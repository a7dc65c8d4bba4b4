package build

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
)

// curfew is our module's path in go.mod.
const curfew = "github.com/curfewmq/curfew"

// plugin is the value of one flag --with.
type plugin struct {
	pkg     string // import path
	version string // of its module; "" = any
	folder  string // folder of its module, as given; "" = none
}

var (
	// pathElement matches a part of an import path between slashes.
	pathElement = regexp.MustCompile(`^[0-9A-Za-z_~+-][0-9A-Za-z._~+-]*$`)
	// query matches the versions that "go get" accepts, except comparisons.
	query = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._~+/-]*$`)
	// exact matches the versions that go.mod accepts.
	exact = regexp.MustCompile(`^v\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?$`)
)

// parsePlugin reads path[@VERSION][=FOLDER].
func parsePlugin(s string) (p plugin, err error) {
	if s == "" {
		return p, errors.New("it is empty; accepted is a package, such as example.com/nightshift@v1.2.0")
	}
	named, folder, local := strings.Cut(s, "=")
	pkg, version, versioned := strings.Cut(named, "@")
	p = plugin{pkg: pkg, version: version, folder: folder}
	switch {
	case local && folder == "":
		return p, errors.New("the folder after = is empty")
	case local:
		err = checkFolder(folder)
	}
	if err == nil {
		err = checkPackage(pkg, local)
	}
	if err == nil && versioned {
		err = checkVersion(version, local)
	}
	if err == nil && within(pkg, curfew) && (local || versioned) {
		err = errors.New("the flag --curfew says where packages of curfew come from")
	}
	return p, err
}

func checkPackage(pkg string, local bool) error {
	switch {
	case pkg == "":
		return errors.New("the package is missing; accepted are import paths such as example.com/nightshift")
	case pkg[0] == '-':
		return fmt.Errorf("the package %q begins with a dash; accepted are import paths such as example.com/nightshift", pkg)
	case filepath.IsAbs(pkg) || pkg[0] == '/' || pkg[0] == '.':
		return fmt.Errorf("%q is a folder and no package; put the import path before it, as in example.com/nightshift=%s", pkg, pkg)
	}
	for element := range strings.SplitSeq(pkg, "/") {
		if !pathElement.MatchString(element) || strings.HasSuffix(element, ".") || strings.Contains(element, "..") {
			return fmt.Errorf("%q is no import path: its parts between slashes are letters, digits and . _ ~ + - without a dot at either end or two in a row", pkg)
		}
	}
	if within(pkg, mainPath) {
		return fmt.Errorf("the name %s is that of the program; a plugin's module needs another one", mainPath)
	}
	host, _, _ := strings.Cut(pkg, "/")
	if !local && !strings.Contains(host, ".") {
		return fmt.Errorf("%q does not begin with a host such as example.com; only a module with =FOLDER may have any name", pkg)
	}
	return nil
}

func checkVersion(version string, local bool) error {
	switch {
	case version == "":
		return errors.New("the version after @ is empty; accepted are v1.2.0, latest, a branch or a commit")
	case version == "none" || !query.MatchString(version):
		return fmt.Errorf("the version %q is not accepted; accepted are v1.2.0, latest, a branch or a commit", version)
	case local && !exact.MatchString(version):
		return fmt.Errorf("the version %q is not accepted beside a folder; accepted is a full one such as v1.2.0, or none", version)
	}
	return nil
}

func checkFolder(folder string) error {
	if i := strings.IndexFunc(folder, unicode.IsControl); i >= 0 {
		return fmt.Errorf("the folder %q has a control character", folder)
	}
	return nil
}

// checkTogether refuses a package that is listed twice. The last one is new.
func checkTogether(all []plugin) error {
	last := all[len(all)-1]
	for _, p := range all[:len(all)-1] {
		if p.pkg == last.pkg {
			return fmt.Errorf("the package %s is there twice", p.pkg)
		}
	}
	return nil
}

// checkSource checks the value of --curfew.
func checkSource(s string) error {
	version, versioned := strings.CutPrefix(s, "@")
	switch {
	case s == "":
		return errors.New("it is empty; accepted are a folder with the sources, or @VERSION")
	case versioned:
		return checkVersion(version, false)
	case exact.MatchString(s):
		return fmt.Errorf("a version has an @ before it: @%s", s)
	}
	return checkFolder(s)
}

// within reports whether a package is a module's root package or below it.
func within(pkg, module string) bool { return pkg == module || strings.HasPrefix(pkg, module+"/") }

// absent returns the version in go.mod of a module that is read from a folder.
func absent(module string) string {
	major := "v0"
	if match := regexp.MustCompile(`^v[2-9]\d*$|^v1\d+$`).FindString(path.Base(module)); match != "" {
		major = match
	}
	if host, rest, _ := strings.Cut(module, "/"); host == "gopkg.in" {
		if i := strings.LastIndex(rest, ".v"); i >= 0 {
			major = rest[i+1:]
		}
	}
	return major + ".0.0-00010101000000-000000000000"
}
