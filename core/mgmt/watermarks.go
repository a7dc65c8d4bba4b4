package mgmt

import (
	"encoding/json"
	"math"
)

// setMemoryWatermark sets the memory above which publishers wait, until the broker ends: {"absolute": bytes}, or {"relative": a
// fraction of the machine's memory}, from 0 to 1. With 0 they wait at once. RabbitMQ has no such path: its tools talk to the node.
func (a *API) setMemoryWatermark(c *request) error {
	bytes, err := a.watermark(c, 1)
	if err != nil {
		return err
	}
	a.AMQP.SetMemoryLimit(bytes)
	a.Log.Info("the limit for memory is set", "limit_bytes", bytes, "user", c.user.Name)
	return c.done(nil)
}

// setDiskLimit sets the free disk space below which publishers wait, until the broker ends: {"absolute": bytes}, or {"relative": a
// multiple of the machine's memory}. With 0 they never wait.
func (a *API) setDiskLimit(c *request) error {
	bytes, err := a.watermark(c, maxMultiple)
	if err != nil {
		return err
	}
	a.Store.SetDiskLimit(bytes)
	a.Log.Info("the limit for free disk space is set", "limit_bytes", bytes, "user", c.user.Name)
	return c.done(nil)
}

// maxMultiple is the highest multiple of the machine's memory that a limit for disk space may be.
const maxMultiple = 100

// watermark reads a number of bytes, or a multiple of the machine's memory up to most.
func (a *API) watermark(c *request, most float64) (bytes int64, err error) {
	r := c.body()
	if err := r.Err(); err != nil {
		return 0, err
	}
	if r.There("absolute") == r.There("relative") {
		return 0, badRequest("either absolute or relative is needed")
	}
	if r.There("absolute") {
		n, ok := r.Value("absolute").(json.Number)
		if bytes, err = n.Int64(); !ok || err != nil || bytes < 0 {
			return 0, badRequest("absolute: is not a number of bytes from 0 on")
		}
		return bytes, nil
	}
	n, ok := r.Value("relative").(json.Number)
	multiple, err := n.Float64()
	if !ok || err != nil || !(multiple >= 0 && multiple <= most) {
		return 0, badRequest("relative: is not a number from 0 to %g", most)
	}
	total := a.Machine().MemoryTotal
	if total == 0 && multiple > 0 {
		return 0, badRequest("relative: the machine does not tell how much memory it has; use absolute")
	}
	return int64(min(multiple*float64(total), math.MaxInt64/2)), nil
}
