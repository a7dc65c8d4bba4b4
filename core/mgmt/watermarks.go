package mgmt

import (
	"encoding/json"
	"math"
)

// setMemoryWatermark sets above how much memory publishers wait, until the broker ends: {"absolute": bytes}, or {"relative": a
// share of the machine's memory}, from 0 to 1; with 0 they wait at once. RabbitMQ has no such path: its tools speak to the node.
func (a *API) setMemoryWatermark(c *request) error {
	bytes, err := a.watermark(c, 1)
	if err != nil {
		return err
	}
	a.AMQP.SetMemoryLimit(bytes)
	a.Log.Info("the limit for memory is set", "limit_bytes", bytes, "user", c.user.Name)
	return c.done()
}

// setDiskLimit sets below how much free disk space publishers wait, until the broker ends: {"absolute": bytes}, or {"relative":
// so many times the machine's memory}; 0 = they do not.
func (a *API) setDiskLimit(c *request) error {
	bytes, err := a.watermark(c, maxTimes)
	if err != nil {
		return err
	}
	a.Store.SetDiskLimit(bytes)
	a.Log.Info("the limit for free disk space is set", "limit_bytes", bytes, "user", c.user.Name)
	return c.done()
}

// maxTimes is how many times the memory a reserve of disk space may be.
const maxTimes = 100

// watermark reads an amount of bytes, which may be a number of times the machine's memory, that many at most.
func (a *API) watermark(c *request, most float64) (bytes int64, err error) {
	if err := a.isNode(c.vars["node"]); err != nil {
		return 0, err
	}
	f, err := c.body()
	if err != nil {
		return 0, err
	}
	absolute, isAbsolute := f["absolute"]
	relative, isRelative := f["relative"]
	switch {
	case isAbsolute == isRelative:
		return 0, badRequest("either absolute or relative is needed")
	case isAbsolute:
		n, ok := absolute.(json.Number)
		if bytes, err = n.Int64(); !ok || err != nil || bytes < 0 {
			return 0, badRequest("absolute: is not a number of bytes from 0 on")
		}
		return bytes, nil
	}
	n, ok := relative.(json.Number)
	share, err := n.Float64()
	if !ok || err != nil || !(share >= 0 && share <= most) {
		return 0, badRequest("relative: is not a number from 0 to %g", most)
	}
	total := a.Machine().MemoryTotal
	if total == 0 && share > 0 {
		return 0, badRequest("relative: the machine does not tell how much memory it has; use absolute")
	}
	return int64(min(share*float64(total), math.MaxInt64/2)), nil
}
