package queue

import (
	"math"
	"slices"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// The grid divides the time ahead of an instant, from 10 ms to 30 days, into steps of
// some 5 %. Its bounds are whole milliseconds, and the end of each segment is a bound.
// Histograms with fewer buckets use some of these bounds, so they are computed from
// counts by step without an error.

// dueSegments make up the grid: the end of each segment, and its number of steps.
var dueSegments = [...]struct {
	end   time.Duration
	steps int
}{
	{time.Second, 90}, {10 * time.Second, 45}, {time.Minute, 35}, {10 * time.Minute, 45}, {time.Hour, 35}, {24 * time.Hour, 62}, {DueLast, 66},
}

const (
	// DueFirst is the first bound of the grid.
	DueFirst = 10 * time.Millisecond
	// DueLast is the last bound of the grid.
	DueLast = 30 * 24 * time.Hour
	// DueSteps is how many bounds the grid has.
	DueSteps = 1 + 90 + 45 + 35 + 45 + 35 + 62 + 66
)

// dueGrid are the bounds, inclusive and ascending. They never change.
var dueGrid = func() (grid [DueSteps]hook.Instant) {
	grid[0] = hook.Instant(DueFirst)
	from, at := DueFirst, 0
	for _, s := range dueSegments {
		ratio := float64(s.end) / float64(from)
		for i := 1; i <= s.steps; i++ {
			ideal := time.Duration(float64(from) * math.Pow(ratio, float64(i)/float64(s.steps))).Round(time.Millisecond)
			grid[at+i] = max(hook.Instant(ideal), grid[at+i-1]+hook.Instant(time.Millisecond))
		}
		at += s.steps
		grid[at], from = hook.Instant(s.end), s.end
	}
	return grid
}()

// dueCells has, for each cell, the step of its lowest distance. A cell is the distances
// whose floating-point numbers begin with the same bits. At most two bounds lie in a
// cell, so a search that begins there is short.
const dueCellBits = 5 // of the mantissa

var (
	firstDueCell = dueCell(hook.Instant(DueFirst))
	dueCells     = func() []uint16 {
		cells := make([]uint16, dueCell(hook.Instant(DueLast))-firstDueCell+1)
		for i := range cells {
			least := math.Float64frombits((firstDueCell + uint64(i)) << (52 - dueCellBits))
			cells[i] = uint16(slices.IndexFunc(dueGrid[:], func(bound hook.Instant) bool { return float64(bound) >= least }))
		}
		return cells
	}()
)

func dueCell(distance hook.Instant) uint64 {
	return math.Float64bits(float64(distance)) >> (52 - dueCellBits)
}

// dueStep returns the first step of the grid whose bound is not below a positive
// distance; DueSteps if there is none.
func dueStep(distance hook.Instant) int {
	switch {
	case distance <= dueGrid[0]:
		return 0
	case distance > dueGrid[DueSteps-1]:
		return DueSteps
	}
	i := int(dueCells[dueCell(distance)-firstDueCell])
	for distance > dueGrid[i] {
		i++
	}
	return i
}

// DueStep returns the step of the grid that a distance is in; DueSteps means that it is
// beyond the grid.
func DueStep(distance time.Duration) int { return dueStep(hook.Instant(distance)) }

// DueBound returns the bound of a step of the grid, in whole milliseconds.
func DueBound(step int) time.Duration { return time.Duration(dueGrid[step]) }

// DueCounts counts instants by the step of the grid that they are in. The zero value is
// empty.
type DueCounts struct {
	// Steps[i] counts instants up to and including [DueBound](i) ahead, but beyond the
	// bound before. The last one has no bound.
	Steps    [DueSteps + 1]uint32
	Overdue  int          // instants that have passed; they are in no step
	Earliest hook.Instant // 0 means none
}

// Add counts an instant n times, from the point of view of now.
func (c *DueCounts) Add(now, at hook.Instant, n uint32) {
	if c.Earliest == 0 || at < c.Earliest {
		c.Earliest = at
	}
	if at <= now {
		c.Overdue += int(n)
		return
	}
	c.Steps[dueStep(at-now)] += n
}

// DueMark is N instants that are all at about At.
type DueMark struct {
	At hook.Instant
	N  uint32
}

// appendMarks appends the counts as marks at the bounds of the steps, as seen from now.
func (c *DueCounts) appendMarks(marks []DueMark, now hook.Instant) []DueMark {
	if c.Overdue > 0 {
		marks = append(marks, DueMark{now, uint32(c.Overdue)})
	}
	for i, n := range c.Steps {
		switch {
		case n == 0:
		case i == DueSteps:
			marks = append(marks, DueMark{now + 2*dueGrid[DueSteps-1], n})
		default:
			marks = append(marks, DueMark{now + dueGrid[i], n})
		}
	}
	return marks
}
