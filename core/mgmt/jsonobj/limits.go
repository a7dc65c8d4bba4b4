package jsonobj

// Limits bound the memory for decoding a body. A decoded JSON value takes much more memory than its text, which may have two bytes.
type Limits struct {
	// Values limits the marks in the JSON: opening brackets, commas and colons.
	Values int
	// Memory reserves bytes for the decoded values; nil = nothing does. Its error refuses the body.
	Memory func(bytes int64) error
}

// MaxValues limits the marks in the JSON of a request without a file of definitions. A table of as many fields fits no frame.
const MaxValues = 128 << 10

// perValue is about the memory for each mark of JSON: {"":1} has three marks, and takes 730 bytes.
const perValue = 256

// Check refuses JSON that exceeds the limits. It decodes nothing.
func (l *Limits) Check(b []byte) error {
	deepest, marks := shape(b)
	switch {
	case deepest > maxDepth:
		return Errorf("JSON nests deeper than %d levels", maxDepth)
	case marks > l.Values:
		return Errorf("the JSON has more than %d values", l.Values)
	case l.Memory != nil:
		return l.Memory(int64(marks) * perValue)
	}
	return nil
}

// shape returns how deep brackets nest in JSON, and its number of marks.
func shape(b []byte) (deepest, marks int) {
	level, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			marks++
			level++
			deepest = max(deepest, level)
		case c == '}' || c == ']':
			level--
		case c == ',' || c == ':':
			marks++
		}
	}
	return deepest, marks
}
