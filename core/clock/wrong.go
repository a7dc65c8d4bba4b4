package clock

import (
	"os"
	"time"
)

// variable names a variable of the environment that says how far the clock is ahead of the machine's, such as -450ms. Only the linker sets
// it, for programs that test machines whose clocks differ.
var variable string

var wrong = ahead(variable)

func ahead(variable string) time.Duration {
	text := ""
	if variable != "" {
		text = os.Getenv(variable)
	}
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(variable + ": " + err.Error())
	}
	return d
}
