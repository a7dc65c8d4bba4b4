package clock

import (
	"os"
	"time"
)

// variable is the name of an environment variable that sets how far the clock is ahead of the machine's, such as -450ms. Only the linker sets
// this variable, for programs that test machines with different clocks.
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
