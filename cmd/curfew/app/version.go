package app

import (
	"fmt"
	"runtime"
)

// version is set by release builds, with -ldflags "-X github.com/curfewmq/curfew/cmd/curfew/app.version=…".
var version = "0.1.0"

func (a *app) printVersion(args []string) int {
	f := newFlags("version", "Prints the version of curfew and of the Go it was built with.")
	if code, done := a.parse(f, args); done {
		return code
	}
	fmt.Fprintf(a.stdout, "curfew %s (%s, %s/%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return exitOK
}
