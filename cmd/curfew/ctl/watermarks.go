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
			check: memoryWatermark.check, run: memoryWatermark.set,
			about: "sets the memory above which publishers are blocked, until the broker stops",
			more:  "A fraction is a share of the machine's memory; 0 blocks them at once. The limit applies to mem_in_use of the node: messages, unsent output and the rest of the heap, without garbage and the program itself. A value is in bytes and may have a unit: " + someUnits + ".",
		},
		{
			name: "set_disk_free_limit", operands: "<disk_limit> | mem_relative <fraction>",
			check: diskLimit.check, run: diskLimit.set,
			about: "sets the free disk space below which publishers are blocked, until the broker stops",
			more:  "A limit is in bytes and may have a unit: " + someUnits + ". A fraction is a multiple of the machine's memory.",
		},
	}
}

// quantity is a number of bytes in rabbitmqctl's notation: a whole number, with or without a unit.
var quantity = regexp.MustCompile(`^([0-9]+)([A-Za-z]{0,4})$`)

var quantityUnits = map[string]int64{
	"": 1, "k": 1 << 10, "kiB": 1 << 10, "M": 1 << 20, "MiB": 1 << 20, "G": 1 << 30, "GiB": 1 << 30, "kB": 1e3, "MB": 1e6, "GB": 1e9,
}

// someUnits are the units of quantityUnits, for error texts. Larger units, which later versions of rabbitmqctl have, are refused.
const someUnits = "k, kB, kiB, M, MB, MiB, G, GB or GiB"

// badQuantity refuses a number of bytes with rabbitmqctl's text, followed by the accepted notations.
func badQuantity(problem string) error {
	return badArgument(problem + " Accepted are whole numbers of bytes, with a unit or without: " + someUnits)
}

// parseQuantity reads a number of bytes; wrong is the error text, "" if there is none.
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

// watermark reads the operands of a command that sets a threshold.
type watermark func(operands []string) (threshold, error)

// threshold is the setting that the operands describe.
type threshold struct {
	name   string // of the API's resource
	how    string // absolute or relative
	value  any
	banner string // a format for the node and the value
	asked  string
}

func (w watermark) check(c *call) error {
	_, err := w(c.operands)
	return err
}

func (w watermark) set(ctx context.Context, c *call) error {
	t, err := w(c.operands)
	if err != nil {
		return err
	}
	overview, err := c.overview(ctx)
	if err != nil {
		return err
	}
	node := overview.text("node")
	c.banner(t.banner, node, t.asked)
	return c.doneUnless(c.api.put(ctx, path("nodes", node, t.name), map[string]any{t.how: t.value}))
}

var (
	memoryWatermark watermark = readMemoryWatermark
	diskLimit       watermark = readDiskLimit
)

// operand returns the only operand, or the one after word.
func operand(operands []string, word string) (string, error) {
	switch {
	case operands[0] != word && len(operands) > 1:
		return "", misused("too many arguments.")
	case operands[0] == word && len(operands) == 1:
		return "", misused("not enough arguments.")
	}
	return operands[len(operands)-1], nil
}

func readMemoryWatermark(operands []string) (threshold, error) {
	asked, err := operand(operands, "absolute")
	if err != nil {
		return threshold{}, err
	}
	f, err := strconv.ParseFloat(asked, 64)
	if operands[0] != "absolute" {
		switch {
		case err != nil:
			return threshold{}, badArgument("Bad argument.")
		case !(f >= 0 && f <= 1):
			return threshold{}, badArgument("Bad argument: The threshold should be a fraction between 0.0 and 1.0")
		}
		return threshold{"memory-watermark", "relative", f, "Setting memory threshold on %s to %s ...", asked}, nil
	}
	if err == nil && strings.Contains(asked, ".") {
		return threshold{}, badArgument("Bad argument: The threshold should be an integer.")
	}
	n, wrong := parseQuantity(asked)
	if wrong == "" && n < 0 {
		wrong = "Bad argument."
	}
	if wrong != "" {
		return threshold{}, badQuantity(wrong)
	}
	return threshold{"memory-watermark", "absolute", n, "Setting memory threshold on %s to %s bytes ...", asked}, nil
}

// maxTimes is the greatest reserve of disk space relative to the memory.
const maxTimes = 100

func readDiskLimit(operands []string) (threshold, error) {
	asked, err := operand(operands, "mem_relative")
	if err != nil {
		return threshold{}, err
	}
	if operands[0] != "mem_relative" {
		n, wrong := parseQuantity(asked)
		if wrong != "" {
			return threshold{}, badQuantity("Bad argument.")
		}
		return threshold{"disk-free-limit", "absolute", max(n, 0), "Setting disk free limit on %s to %s bytes ...", asked}, nil
	}
	f, err := strconv.ParseFloat(asked, 64)
	if err != nil || !(f >= 0 && f <= maxTimes) {
		return threshold{}, badArgument("Bad argument.")
	}
	return threshold{"disk-free-limit", "relative", f, "Setting disk free limit on %s to %s times the total RAM ...", asked}, nil
}
