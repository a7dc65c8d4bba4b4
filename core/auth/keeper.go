package auth

import (
	"fmt"

	"github.com/curfewmq/curfew/core/amqp"
)

// Keeper keeps what is changed. Its methods may be called from any goroutine; only Wait waits for the disk.
type Keeper interface {
	// Write adds definitions, all of them or none, to those that were written before. defs is the caller's again afterwards.
	Write(defs []byte)
	// Bulky reports whether so much was written that it is worth a Rewrite.
	Bulky() bool
	// Rewrite replaces all that was written of the users so far.
	Rewrite(defs []byte)
	// Wait returns when all that was written before is durable. Its error means that nobody knows whether it is.
	Wait() error
}

// note adds a definition to those of the change at hand. The caller holds mu.
func (s *Store) note(def amqp.Table) {
	if s.options.Keeper != nil {
		s.noted = amqp.AppendTable(s.noted, def)
	}
}

// unlock ends a change: what was noted is written, all at once, and what was concluded from how things were is void.
func (s *Store) unlock() {
	if len(s.noted) > 0 {
		s.options.Keeper.Write(s.noted)
		s.noted = s.noted[:0]
	}
	s.version.Add(1)
	s.mu.Unlock()
}

// await waits until a change is durable.
func (s *Store) await() error {
	k := s.options.Keeper
	if k == nil {
		return nil
	}
	s.Condense()
	if err := k.Wait(); err != nil {
		return fmt.Errorf("users: definitions: %w", err)
	}
	return nil
}

// Condense writes the definitions of all users in place of all that was written so far, if that is worth it.
func (s *Store) Condense() {
	k := s.options.Keeper
	if k == nil || !k.Bulky() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.Bulky() { // nobody else did it meanwhile
		k.Rewrite(s.definitions())
	}
}
