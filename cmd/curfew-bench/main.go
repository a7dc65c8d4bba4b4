// Command curfew-bench puts load on an AMQP 0-9-1 broker, this one or another, and measures it. Package bench has the program.
package main

import (
	"os"

	"github.com/curfewmq/curfew/cmd/curfew-bench/bench"
)

func main() { os.Exit(bench.Main(os.Args[1:], os.Stdout, os.Stderr)) }
