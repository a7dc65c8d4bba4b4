package ctl

import (
	"context"
	"regexp"
	"strconv"
	"strings"
)

func watermarkCommands() []command {
	return []command{
		{
			name: "set_vm_memory_high_watermark", operands: "<fraction> | absolute <value>",
			check: checkMemoryWatermark, run: setMemoryWatermark,
			about: "sets the memory above which publishers are blocked, until the broker ends",
			more:  "A fraction is of the machine's memory; 0 blocks them at once. A value is in bytes and may have a unit: " + someUnits + ".",
		},
		{
			name: "set_disk_free_limit", operands: "<disk_limit> | mem_relative <fraction>",
			check: checkDiskLimit, run: setDiskLimit,
			about: "sets the free disk space below which publishers are blocked, until the broker ends",
			more:  "A limit is in bytes and may have a unit: " + someUnits + ". A fraction is of the machine's memory.",
		},
	}
}

// quantity is an amount of bytes as rabbitmqctl reads it: a whole number, maybe with a unit.
var quantity = regexp.MustCompile(`^([0-9]+)([A-Za-z]{0,4})$`)

var quantityUnits = map[string]int64{
	"": 1, "k": 1 << 10, "kiB": 1 << 10, "M": 1 << 20, "MiB": 1 << 20, "G": 1 << 30, "GiB": 1 << 30, "kB": 1e3, "MB": 1e6, "GB": 1e9,
}

// someUnits are those of quantityUnits, for people. Larger ones, which later versions of rabbitmqctl know, are none.
const someUnits = "k, kB, kiB, M, MB, MiB, G, GB or GiB"

// badQuantity refuses an amount with what rabbitmqctl says, and says what would be right.
func badQuantity(problem string) error {
	return badArgument(problem + " Accepted are whole numbers of bytes, with a unit or without: " + someUnits)
}

// parseQuantity reads an amount of bytes; wrong says what is wrong with it.
func parseQuantity(s string) (bytes int64, wrong string) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, ""
	}
	parts := quantity.FindStringSubmatch(s)
	if parts == nil {
		return 0, "Bad argument."
	}
	unit, known := quantityUnits[parts[2]]
	if !known {
		return 0, "Bad argument: Invalid units."
	}
	n, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || n > (1<<62)/unit {
		return 0, "Bad argument."
	}
	return n * unit, ""
}

func badArgument(problem string) error { return &misuse{dataError, problem} }

func checkMemoryWatermark(c *call) error {
	first := c.operands[0]
	if first == "absolute" {
		return checkAbsolute(c)
	}
	if len(c.operands) > 1 {
		return misused("too many arguments.")
	}
	f, err := strconv.ParseFloat(first, 64)
	switch {
	case err != nil:
		return badArgument("Bad argument.")
	case !(f >= 0 && f <= 1):
		return badArgument("Bad argument: The threshold should be a fraction between 0.0 and 1.0")
	}
	return nil
}

func checkAbsolute(c *call) error {
	if len(c.operands) == 1 {
		return misused("not enough arguments.")
	}
	if _, err := strconv.ParseFloat(c.operands[1], 64); err == nil && strings.Contains(c.operands[1], ".") {
		return badArgument("Bad argument: The threshold should be an integer.")
	}
	if n, wrong := parseQuantity(c.operands[1]); wrong != "" {
		return badQuantity(wrong)
	} else if n < 0 {
		return badQuantity("Bad argument.")
	}
	return nil
}

func setMemoryWatermark(ctx context.Context, c *call) error {
	const which = "memory-watermark"
	if c.operands[0] == "absolute" {
		n, _ := parseQuantity(c.operands[1]) // it was checked
		return c.setWatermark(ctx, watermark{which, "absolute"}, n, "Setting memory threshold on %s to %s bytes ...", c.operands[1])
	}
	f, _ := strconv.ParseFloat(c.operands[0], 64)
	return c.setWatermark(ctx, watermark{which, "relative"}, f, "Setting memory threshold on %s to %s ...", c.operands[0])
}

func checkDiskLimit(c *call) error {
	if c.operands[0] != "mem_relative" {
		if len(c.operands) > 1 {
			return misused("too many arguments.")
		}
		if _, wrong := parseQuantity(c.operands[0]); wrong != "" {
			return badQuantity("Bad argument.")
		}
		return nil
	}
	if len(c.operands) == 1 {
		return misused("not enough arguments.")
	}
	if f, err := strconv.ParseFloat(c.operands[1], 64); err != nil || !(f >= 0 && f <= maxTimes) {
		return badArgument("Bad argument.")
	}
	return nil
}

// maxTimes is how many times the memory a reserve of disk space may be.
const maxTimes = 100

func setDiskLimit(ctx context.Context, c *call) error {
	const which = "disk-free-limit"
	if c.operands[0] != "mem_relative" {
		n, _ := parseQuantity(c.operands[0]) // it was checked
		return c.setWatermark(ctx, watermark{which, "absolute"}, max(n, 0), "Setting disk free limit on %s to %s bytes ...", c.operands[0])
	}
	f, _ := strconv.ParseFloat(c.operands[1], 64)
	return c.setWatermark(ctx, watermark{which, "relative"}, f, "Setting disk free limit on %s to %s times the total RAM ...", c.operands[1])
}

// watermark is one of the two, and how it is set.
type watermark struct{ name, how string }

// setWatermark sets one, once it is said, with the broker's name and what was asked for.
func (c *call) setWatermark(ctx context.Context, w watermark, value any, say, asked string) error {
	overview, err := c.overview(ctx)
	if err != nil {
		return err
	}
	node := overview.text("node")
	c.banner(say, node, asked)
	if err := c.api.put(ctx, path("nodes", node, w.name), map[string]any{w.how: value}); err != nil {
		return err
	}
	return c.done()
}
