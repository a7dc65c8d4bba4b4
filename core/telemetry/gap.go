package telemetry

import (
	"math"
	"math/rand/v2"
)

// Gap returns how many orphans in a row are not to be traced before one that is. Chance decides about each of them by
// itself, as with [Spans.Draw], but whoever counts them down has to ask for those alone that are traced.
func (s *Spans) Gap() int {
	switch r := s.sampling.Ratio; {
	case r >= 1:
		return 0
	case r <= 0:
		return math.MaxInt
	default: // how often a coin that shows heads with the chance r shows tails before it does
		return int(min(math.Log(1-rand.Float64())/math.Log1p(-r), math.MaxInt32))
	}
}
