package meter

import "math"

// control reads the immediates of a control instruction and sets the class of the following code.
func (s *scanner) control(op byte, sh shape) {
	switch sh {
	case blockStart:
		s.enter(op, s.blockType())
	case elseOrEnd:
		if op == opElse {
			s.otherwise()
			return
		}
		s.leave()
	case branch:
		s.label()
		if op == opBrIf {
			s.branchOff()
			return
		}
		s.class = noPoint
	case table:
		n := s.count("labels", 1, maxLabels)
		s.effort.blocks += n
		for i := 0; i <= n && s.err == nil; i++ {
			s.label()
		}
		s.class = noPoint
	case stop:
		if op == opReturn {
			s.escape(0)
		}
		s.class = noPoint
	}
}

func (s *scanner) enter(op byte, arity int) {
	s.effort.blocks++
	s.effort.instructions += arity
	s.frames = append(s.frames, frame{op: op, arity: arity, outside: s.class, escape: math.MaxInt})
	switch op {
	case opIf:
		s.branchOff()
	case opLoop:
		s.enterLoop()
	}
}

func (s *scanner) enterLoop() {
	s.loops++
	if s.class != noPoint {
		s.begin(itself, true)
	}
}

// otherwise begins the second arm of an if.
func (s *scanner) otherwise() {
	f := &s.frames[len(s.frames)-1]
	if f.op != opIf {
		s.failf(s.pos-1, "else stands outside of an if")
		return
	}
	f.op, f.then = opElse, s.class
	s.class = f.outside
	s.branchOff()
}

// leave closes a frame.
func (s *scanner) leave() {
	height := len(s.frames) - 1
	f := s.frames[height]
	s.frames = s.frames[:height]
	if f.op == opLoop {
		s.loops--
	}
	if height == 0 || f.outside == noPoint {
		return
	}
	outer := &s.frames[height-1]
	outer.escape = min(outer.escape, f.escape)
	s.class = s.after(f, height)
}

// after returns the class of the code that follows a frame; noPoint if it cannot be reached.
func (s *scanner) after(f frame, height int) int {
	switch {
	case f.op == opLoop && s.class == noPoint:
		return noPoint
	case f.op == opLoop: // a class inside would be charged in each iteration
		return s.merge(f, height)
	case f.op == opIf: // without else
		return s.merge(f, height)
	case f.reached:
		return s.merge(f, height)
	case f.op != opElse || f.then == noPoint: // the end is reached in only one way
		return s.class
	case s.class == noPoint:
		return f.then
	}
	return s.merge(f, height)
}

// merge returns the class where several paths out of a frame merge. If no path has left to an outer frame, the class from before the frame
// continues.
func (s *scanner) merge(f frame, height int) int {
	if f.escape < height {
		s.begin(f.outside, false)
		return s.class
	}
	return f.outside
}

// label reads a branch's label.
func (s *scanner) label() {
	height := len(s.frames) - 1 - int(s.index("label", len(s.frames)))
	if s.class == noPoint || s.err != nil {
		return
	}
	s.effort.instructions += s.frames[height].arity
	s.frames[height].reached = true
	s.escape(height)
}

// escape records a branch to the frame of that height.
func (s *scanner) escape(height int) {
	if f := &s.frames[len(s.frames)-1]; s.class != noPoint {
		f.escape = min(f.escape, height)
	}
}
