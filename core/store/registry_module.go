package store

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"
	"unicode/utf8"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
)

// Module is code that all nodes load, with its settings. It is never modified.
type Module struct {
	Name     string
	Options  []byte // opaque to the registry
	Bytes    []byte
	Revision int64 // differs after each change, even if a change restores an earlier module
}

// Limits of the registry.
const (
	// MaxModule bounds the size of a module, in bytes.
	MaxModule = 64 << 20
	// MaxModules bounds how many modules there are, and maxModuleBytes the size of all
	// together: every node has them in memory.
	MaxModules     = 1000
	maxModuleBytes = 256 << 20
	// maxOptions bounds the settings of a module, in bytes.
	maxOptions = 256 << 10
	// modulePart is the size of the pieces in which modules are written, so that other
	// commits do not wait long behind a piece.
	modulePart = 1 << 20
)

// CheckModule returns an error if the registry refuses a module, whichever other modules
// there are.
func CheckModule(m *Module) error {
	switch {
	case m.Name == "" || len(m.Name) > maxText || !utf8.ValidString(m.Name):
		return fmt.Errorf("module %q: a name is UTF-8 of 1 to %d bytes", m.Name, maxText)
	case len(m.Bytes) == 0 || len(m.Bytes) > MaxModule:
		return fmt.Errorf("module %q: has %d bytes: 1 to %d are accepted", m.Name, len(m.Bytes), MaxModule)
	case len(m.Options) > maxOptions:
		return fmt.Errorf("module %q: the settings have %d bytes: up to %d are accepted", m.Name, len(m.Options), maxOptions)
	}
	return nil
}

// newRevision returns a number that no other change of a module has had.
func newRevision() int64 {
	var b [8]byte
	rand.Read(b[:])
	return int64(binary.LittleEndian.Uint64(b[:]))
}

// definitions yields the definitions of a module, each to be written by itself.
func (m *Module) definitions() iter.Seq[amqp.Table] {
	return func(yield func(amqp.Table) bool) {
		digest := sha256.Sum256(m.Bytes)
		about := []amqp.Field{field(fieldName, m.Name), field(fieldDigest, digest[:]), field(fieldSize, int64(len(m.Bytes)))}
		for from := 0; from < len(m.Bytes); from += modulePart {
			piece := m.Bytes[from:min(from+modulePart, len(m.Bytes))]
			def := append(definition.New(opModulePart, about...), field(fieldFrom, int64(from)), field(fieldBytes, piece))
			if !yield(def) {
				return
			}
		}
		yield(append(definition.New(opSetModule, about...), field(fieldModule, m.Options), field(fieldRevision, m.Revision)))
	}
}

// upload is a module of which not all pieces were read yet.
type upload struct {
	name   string
	digest [sha256.Size]byte
	size   int64
	bytes  []byte // of all pieces so far
}

// readUpload reads the fields that all definitions of a module have.
func readUpload(d *definition.Definition) (u upload, err error) {
	var digest []byte
	definition.Read(d, fieldName, &u.name, &err)
	definition.Read(d, fieldDigest, &digest, &err)
	definition.Read(d, fieldSize, &u.size, &err)
	switch {
	case err != nil:
	case len(digest) != len(u.digest):
		err = fmt.Errorf("definition %q: digest of %d bytes: a digest has %d", d.Op, len(digest), len(u.digest))
	case u.size <= 0 || u.size > MaxModule:
		err = fmt.Errorf("definition %q: size %d: not between 1 and %d", d.Op, u.size, MaxModule)
	}
	copy(u.digest[:], digest)
	return u, err
}

// is reports whether both are pieces of the same module.
func (u *upload) is(other *upload) bool {
	return u != nil && u.name == other.name && u.digest == other.digest && u.size == other.size
}

// applyPart adds a piece to the unfinished module. A first piece begins another module: the
// one before was never finished.
func (s *registryState) applyPart(d *definition.Definition) error {
	next, err := readUpload(d)
	var from int64
	var piece []byte
	definition.Read(d, fieldFrom, &from, &err)
	definition.Read(d, fieldBytes, &piece, &err)
	if err != nil {
		return err
	}
	if from == 0 {
		s.upload = &next
	}
	u := s.upload
	if !u.is(&next) || from != int64(len(u.bytes)) || len(piece) == 0 || int64(len(piece)) > u.size-from {
		s.upload = nil // the earlier pieces were trimmed because the module was never finished; otherwise its opSetModule fails
		return nil
	}
	u.bytes = append(u.bytes, piece...)
	return nil
}

// applyModule completes the unfinished module.
func (s *registryState) applyModule(d *definition.Definition) error {
	about, err := readUpload(d)
	m := &Module{Name: about.name}
	definition.Read(d, fieldModule, &m.Options, &err)
	definition.Read(d, fieldRevision, &m.Revision, &err)
	u := s.upload
	s.upload = nil
	switch {
	case err != nil:
		return err
	case !u.is(&about) || int64(len(u.bytes)) != u.size:
		return fmt.Errorf("definition %q: module %q: not all of its pieces came before", d.Op, m.Name)
	case sha256.Sum256(u.bytes) != u.digest:
		return fmt.Errorf("definition %q: module %q: the digest is that of another module", d.Op, m.Name)
	}
	m.Bytes = u.bytes
	if err := CheckModule(m); err != nil {
		return err
	}
	if was := s.modules[m.Name]; was != nil && was.Revision == m.Revision {
		return nil // it was written again, for its place in the log
	}
	s.modules[m.Name] = m
	return nil
}
