package auth

import (
	"fmt"
	"iter"

	"github.com/curfewmq/curfew/core/amqp"
)

// DefinitionLog keeps what is changed. Its methods may be called from any goroutine; only Wait waits for the disk.
type DefinitionLog interface {
	// Write adds definitions, all of them or none, to those that were written before. defs is the caller's again afterwards.
	Write(defs []byte)
	// NeedsCompaction reports whether so much was written that it is worth a Rewrite.
	NeedsCompaction() bool
	// Rewrite replaces all that was written of the users so far by what the parts say together, the first of which begins
	// anew: all of it, or, if it comes to nothing, none. A part is the caller's again when the next is asked for.
	Rewrite(parts iter.Seq[[]byte])
	// WaitDurable returns when all that was written before is durable. Its error means that nobody knows whether it is.
	WaitDurable() error
}

// note adds a definition to those of the change at hand. The caller holds changing.
func (s *Store) note(def amqp.Table) {
	if s.options.Keeper != nil {
		s.noted = amqp.AppendTable(s.noted, def)
	}
}

// replacement is what becomes of users by a change: others in their places, nil for those who are deleted.
type replacement map[string]*user

// change makes a change once it is durable: nobody has seen anything of one that cannot be made so. plan says what changes,
// having noted the definitions of it; nothing is an answer, too. Changes are made one at a time.
func (s *Store) change(plan func() (replacement, error)) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.noted = s.noted[:0]
	next, err := plan()
	if err != nil || len(next) == 0 {
		return err
	}
	if err := s.write(); err != nil {
		return err
	}
	s.replace(next)
	s.condense()
	return nil
}

// write writes what was noted, all at once, and waits until it is durable. The caller holds changing.
func (s *Store) write() error {
	k := s.options.Keeper
	if k == nil {
		return nil
	}
	k.Write(s.noted)
	if err := k.WaitDurable(); err != nil {
		return fmt.Errorf("users: definitions: %w", err)
	}
	return nil
}

// replace puts a change in force, and makes void what was concluded from how things were. The caller holds changing.
func (s *Store) replace(next replacement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, u := range next {
		if u == nil {
			delete(s.users, name)
			continue
		}
		s.users[name] = u
	}
	s.version.Add(1)
}

// CompactDefinitions writes the definitions of all users in place of all that was written so far, if that is worth it.
func (s *Store) CompactDefinitions() {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.condense()
}

// condense is CompactDefinitions for a caller who holds changing.
func (s *Store) condense() {
	if k := s.options.Keeper; k != nil && k.NeedsCompaction() {
		k.Rewrite(s.parts)
	}
}
