// Command gen writes the generated part of package amqp: gen FILE.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/curfewmq/curfew/core/amqp/spec"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: gen FILE")
	}
	p, err := spec.Load()
	if err != nil {
		return fmt.Errorf("protocol table: %w", err)
	}
	src, err := spec.Generate(p)
	if err != nil {
		return err
	}
	return os.WriteFile(args[0], src, 0o644)
}
