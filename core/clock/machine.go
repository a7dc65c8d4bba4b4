package clock

import "time"

// Machine returns what the machine's clock says: nanoseconds since the Unix epoch. It is set now and then, also backwards. Programs that are
// built with the tag wrongclock, for tests of machines whose clocks differ, are told by a variable how far their clock is ahead.
func Machine() int64 { return time.Now().Add(wrong).UnixNano() }
