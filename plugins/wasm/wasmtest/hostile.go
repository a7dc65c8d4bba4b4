package wasmtest

import (
	"slices"

	"github.com/curfewmq/curfew/sdk/abi"
)

// Hostile is a policy that does harm, on purpose or by mistake.
type Hostile struct {
	Name   string
	Module []byte
	// Kind is the kind of its failures: trap, fuel, memory, fail or verdict; "" means fuel or trap.
	Kind string
}

// Hostiles returns the corpus. All of them can be loaded, because they do no harm when they are tried; they do it for each enqueued
// message.
func Hostiles() []Hostile {
	nothing := abi.Signature{}
	counted := abi.Signature{Params: []abi.Value{abi.I64}}
	const pages, page = 200, 64 << 10
	return []Hostile{
		hostile("endless loop", "fuel", func(*Builder) []byte { return Loop(Br(0)) }),
		hostile("exponential recursion", "fuel", func(b *Builder) []byte {
			less := slices.Concat(LocalGet(0), I64(1), I64Sub, Call(0))
			b.Func(counted, nil, LocalGet(0), I64Eqz, If(Return), less, less)
			return slices.Concat(I64(62), Call(0))
		}),
		hostile("bottomless recursion", "", func(b *Builder) []byte { // fuel or trap, whichever comes first
			b.Func(nothing, nil, Call(0), Call(0))
			return Call(0)
		}),
		hostile("memory bomb", "fuel", func(b *Builder) []byte {
			b.Memory(1, 65536)
			return Loop(I32(1), MemoryGrow, Drop, Br(0))
		}),
		hostile("large memory bomb", "fuel", func(b *Builder) []byte {
			b.Memory(1, 65536)
			return Loop(I32(64), MemoryGrow, I32(page), I32Mul, I32(1), I32Store(0), Br(0))
		}),
		hostile("memory.fill bomb", "fuel", func(b *Builder) []byte {
			b.Memory(pages, pages)
			return Loop(I32(0), I32(0), I32(pages*page), MemoryFill, Br(0))
		}),
		hostile("memory.fill bomb in pieces", "fuel", func(b *Builder) []byte { // with enough fuel for each single one
			b.Memory(pages, pages)
			return Loop(I32(0), I32(0), I32(page), MemoryFill, Br(0))
		}),
		hostile("memory.copy bomb", "fuel", func(b *Builder) []byte {
			b.Memory(pages, pages)
			return Loop(I32(1), I32(0), I32(pages*page-1), MemoryCopy, Br(0))
		}),
		hostile("trap", "trap", func(*Builder) []byte { return Unreachable }),
		hostile("wild pointer", "memory", func(*Builder) []byte { return slices.Concat(I32(-4), I32(1), I32Store(0)) }),
		hostile("complaint", "fail", func(*Builder) []byte { return slices.Concat(I32(-1), Return) }),
		hostile("flood of lines", "fuel", func(b *Builder) []byte {
			log := b.Host("log")
			return Loop(I32(abi.LogError), b.Text(Scratch, "look at me"), Call(log), Br(0))
		}),
		hostile("garbage verdicts", "verdict", func(*Builder) []byte {
			return slices.Concat(LocalGet(Verdict), I64(0x0123_4567_89ab_cdef), I64Store(abi.VerdictAction),
				LocalGet(Verdict), I64(-0x0123_4567_89ab_cdef), I64Store(abi.VerdictUntil))
		}),
		hostile("verdicts in the past", "verdict", func(*Builder) []byte { return Keep(I64(1)) }),
	}
}

// hostile makes a module whose on_enqueue runs each's code for every message. Functions that each adds are numbered after its imports.
func hostile(name, kind string, each func(b *Builder) []byte) Hostile {
	b := New()
	body := each(b)
	b.Batch(64)
	b.Each(abi.OnEnqueue, Later(body))
	return Hostile{Name: name, Module: b.Bytes(), Kind: kind}
}

// Picky returns a policy that keeps messages for two seconds, and traps on those with a body.
func Picky() []byte {
	b := New()
	b.Batch(64)
	b.Each(abi.OnEnqueue,
		Later(LocalGet(Record), I32Load(abi.RecordSizeOf), If(Unreachable)),
		Keep(LocalGet(Record), I64Load(abi.RecordEnqueued), I64(2000), I64Add))
	return b.Bytes()
}
