// Command curfew is an AMQP 0-9-1 broker and its tools, with the plugins of this repository. Package app has the program.
package main

import "github.com/curfewmq/curfew/cmd/curfew/app"

func main() { app.Main() }
