package quorum

import (
	"fmt"

	"go.etcd.io/raft/v3"
)

// silent is Raft's logger and writes nothing: the broker counts and logs the events that matter to operators. If Raft finds its own state
// broken it panics, as it would with any logger.
type silent struct{}

var _ raft.Logger = silent{}

func (silent) Debug(...any)            {}
func (silent) Debugf(string, ...any)   {}
func (silent) Error(...any)            {}
func (silent) Errorf(string, ...any)   {}
func (silent) Info(...any)             {}
func (silent) Infof(string, ...any)    {}
func (silent) Warning(...any)          {}
func (silent) Warningf(string, ...any) {}

func (silent) Fatal(a ...any)            { panic(fmt.Sprint(a...)) }
func (silent) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }
func (silent) Panic(a ...any)            { panic(fmt.Sprint(a...)) }
func (silent) Panicf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }
