//go:build wrongclock

package clock

import (
	"os"
	"time"
)

// wrong is how far the clock is ahead of the machine's, such as -450ms.
var wrong = mustParse(os.Getenv("WRONG_CLOCK"))

func mustParse(text string) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		panic("WRONG_CLOCK: " + err.Error())
	}
	return d
}
