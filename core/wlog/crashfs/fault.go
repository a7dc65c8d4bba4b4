package crashfs

import (
	"errors"
	"fmt"
)

// OpKind is the kind of an operation on the file system.
type OpKind uint8

// The kinds. All but OpRead change something.
const (
	OpCreate OpKind = iota
	OpWrite
	OpAllocate
	OpSync
	OpSyncDir
	OpRename
	OpRemove
	OpRead // or listing the directory
	opKinds
)

var opNames = [...]string{"create", "write", "allocate", "sync", "sync directory", "rename", "remove", "read"}

func (k OpKind) String() string { return opNames[k] }

// Op is an operation that is about to be done.
type Op struct {
	Kind OpKind
	Name string // of the file, as it was opened; empty for the directory
	N    int    // number of earlier operations of the kind
}

// ErrPower is the error of operations without power.
var ErrPower = errors.New("no power")

// ErrInjected is the error of [FS.FailNth].
var ErrInjected = errors.New("injected fault")

// Inject makes fault decide which operations fail; nil = none. fault must not use the file system.
func (s *FS) Inject(fault func(Op) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// FailNth makes only the n-th operation of a kind from now on fail, counted from 0.
func (s *FS) FailNth(kind OpKind, n int) {
	first := s.Count(kind)
	s.Inject(func(op Op) error {
		if op.Kind == kind && op.N == first+n {
			return ErrInjected
		}
		return nil
	})
}

// CutPower lets n more changes succeed. The next one is cut short, and everything after it fails with [ErrPower].
func (s *FS) CutPower(n int) {
	s.Inject(func(op Op) error {
		if op.Kind == OpRead {
			return nil
		}
		if n--; n >= 0 {
			return nil
		}
		return ErrPower
	})
}

// Count returns the number of operations of a kind so far.
func (s *FS) Count(kind OpKind) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count[kind]
}

// errDark is ErrPower for all but the operation that was cut short.
var errDark = fmt.Errorf("%w any more", ErrPower)

// op counts an operation and says whether it fails. The caller holds mu.
func (s *FS) op(kind OpKind, name string) error {
	if s.dark {
		return errDark
	}
	n := s.count[kind]
	s.count[kind]++
	if s.fault == nil {
		return nil
	}
	err := s.fault(Op{Kind: kind, Name: name, N: n})
	s.dark = errors.Is(err, ErrPower)
	return err
}
