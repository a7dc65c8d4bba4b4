package app

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
)

// browse opens an address in the browser of the user that started the broker. If that fails later, failed is called from another goroutine.
func browse(address string, failed func(error)) error {
	name, args := opener(runtime.GOOS)
	path, err := exec.LookPath(name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, errors.Unwrap(err))
	}
	c := exec.Command(path, append(args, address)...) //nolint:noctx // it must outlive the broker
	if err := c.Start(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	go func() {
		if err := c.Wait(); err != nil {
			failed(fmt.Errorf("%s: %w", name, err))
		}
	}()
	return nil
}

// opener returns the program that opens addresses on an operating system, and its arguments before the address.
func opener(system string) (name string, args []string) {
	switch system {
	case "darwin":
		return "open", nil
	case "windows":
		return "rundll32", []string{"url.dll,FileProtocolHandler"}
	}
	return "xdg-open", nil
}

// openPage opens the management page. The broker also works without a browser, so failures are only warnings.
func (s *service) openPage(browse func(address string, failed func(error)) error) {
	address := s.broker.PageAddress()
	if address == "" {
		s.log.Warn("there is no page to open: listen.management is off")
		return
	}
	s.log.Info("opening the management page", "address", address)
	failed := func(err error) {
		s.log.Warn("the management page cannot be opened: open it yourself", "address", address, "error", err)
	}
	if err := browse(address, failed); err != nil {
		failed(err)
	}
}
