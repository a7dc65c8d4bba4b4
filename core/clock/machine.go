package clock

import "time"

// Machine returns what the machine's clock says: nanoseconds since the Unix epoch. It is set now and then, also backwards. A variable of
// the environment sets it ahead in programs that test machines whose clocks differ.
func Machine() int64 { return time.Now().Add(wrong).UnixNano() }
