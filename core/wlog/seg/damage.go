package seg

import (
	"fmt"

	"github.com/curfewmq/curfew/core/wlog"
)

// Damage is the place where a log differs from the bytes that were written. It is a [wlog.ErrDamaged].
type Damage struct {
	File   string
	Offset int64 // bytes into the file
	Reason string
}

func (d *Damage) Error() string {
	return fmt.Sprintf("%v: %s at byte %d: %s", wlog.ErrDamaged, d.File, d.Offset, d.Reason)
}

// Unwrap makes a Damage a wlog.ErrDamaged.
func (d *Damage) Unwrap() error { return wlog.ErrDamaged }
