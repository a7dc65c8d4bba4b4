package meter

// Limits on the effort of compiling a function. An engine's compiler needs far more than linear time and memory for some functions: a few
// kilobytes of nested loops over a thousand locals keep wazero's compiler busy for minutes, and it cannot be interrupted. Compilers
// of real languages stay below a third of these limits.
const (
	maxLocals       = 10_000 // declared by a function
	maxLabels       = 10_000 // of a br_table
	maxInstructions = 75_000 // of a function: compiling one may take five kilobytes
	// maxFunctionEffort and maxModuleEffort are in units of 2 µs of wazero's compiler.
	maxFunctionEffort = 600_000
	maxModuleEffort   = 12_000_000
)

// effort estimates the effort of compiling a function.
type effort struct {
	instructions int // including values that calls and branches carry
	blocks       int // basic blocks: dominators take time in proportion to their square
	merges       int // points where a local may be merged, multiplied by the loops around them
}

// units returns the estimate for a function with that many locals.
func (e effort) units(locals int) int {
	return 50 + e.instructions/2 + e.blocks*e.blocks/100 + e.merges*locals
}

// checkEffort adds a function's effort to the total and checks both against their limits.
func (s *scanner) checkEffort() {
	units := s.effort.units(s.locals)
	if units > maxFunctionEffort || s.effort.instructions > maxInstructions {
		s.failf(s.end, "function is too complex to compile: %d instructions, %d blocks, %d locals",
			s.effort.instructions, s.effort.blocks, s.locals)
		return
	}
	s.total += units
	if s.total > maxModuleEffort {
		s.failf(s.end, "module is too complex to compile")
	}
}
