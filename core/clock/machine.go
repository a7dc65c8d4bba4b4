package clock

import "time"

// Machine returns the time of the machine's clock in nanoseconds since the Unix epoch. That clock is adjusted now and then, also backwards. In
// programs that test machines with different clocks, an environment variable sets it ahead.
func Machine() int64 { return time.Now().Add(wrong).UnixNano() }
