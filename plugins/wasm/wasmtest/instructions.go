package wasmtest

import (
	"encoding/binary"
	"slices"
)

// Instructions without immediates.
var (
	Unreachable = []byte{0x00}
	Return      = []byte{0x0f}
	Drop        = []byte{0x1a}
	MemoryGrow  = []byte{0x40, 0}
	MemoryFill  = []byte{0xfc, 11, 0}
	MemoryCopy  = []byte{0xfc, 10, 0, 0}

	I32Eqz  = []byte{0x45}
	I32Eq   = []byte{0x46}
	I32GeU  = []byte{0x4f}
	I32Add  = []byte{0x6a}
	I32Mul  = []byte{0x6c}
	I32Wrap = []byte{0xa7} // an i64

	I64Eqz    = []byte{0x50}
	I64LtS    = []byte{0x53}
	I64GeS    = []byte{0x59}
	I64GeU    = []byte{0x5a}
	I64Add    = []byte{0x7c}
	I64Sub    = []byte{0x7d}
	I64Mul    = []byte{0x7e}
	I64Extend = []byte{0xad} // an unsigned i32

	end = []byte{0x0b}
)

// I32 is a constant.
func I32(n int) []byte { return append([]byte{0x41}, s64(int64(int32(n)))...) }

// I64 is a constant.
func I64(n int64) []byte { return append([]byte{0x42}, s64(n)...) }

// LocalGet pushes a local.
func LocalGet(i int) []byte { return append([]byte{0x20}, u32(i)...) }

// LocalSet pops a local.
func LocalSet(i int) []byte { return append([]byte{0x21}, u32(i)...) }

// LocalTee sets a local to the top of the stack.
func LocalTee(i int) []byte { return append([]byte{0x22}, u32(i)...) }

// GlobalGet pushes a global.
func GlobalGet(i int) []byte { return append([]byte{0x23}, u32(i)...) }

// GlobalSet pops a global.
func GlobalSet(i int) []byte { return append([]byte{0x24}, u32(i)...) }

// I32Load reads an i32 at the address on the stack, plus offset.
func I32Load(offset int) []byte { return append([]byte{0x28, 0}, u32(offset)...) }

// I64Load reads an i64.
func I64Load(offset int) []byte { return append([]byte{0x29, 0}, u32(offset)...) }

// I32Load8U reads a byte.
func I32Load8U(offset int) []byte { return append([]byte{0x2d, 0}, u32(offset)...) }

// I32Store writes the i32 on top of the stack at the address beneath it, plus offset.
func I32Store(offset int) []byte { return append([]byte{0x36, 0}, u32(offset)...) }

// I64Store writes an i64.
func I64Store(offset int) []byte { return append([]byte{0x37, 0}, u32(offset)...) }

// I32Store16 writes the lower half of an i32.
func I32Store16(offset int) []byte { return append([]byte{0x3b, 0}, u32(offset)...) }

// Call calls a function.
func Call(i int) []byte { return append([]byte{0x10}, u32(i)...) }

// Block is a block; Br ends it. Like Loop and If it has neither parameters nor results.
func Block(body ...[]byte) []byte {
	return slices.Concat([]byte{0x02, 0x40}, slices.Concat(body...), end)
}

// Loop is a block; Br repeats it.
func Loop(body ...[]byte) []byte {
	return slices.Concat([]byte{0x03, 0x40}, slices.Concat(body...), end)
}

// If is a block that runs if the popped i32 is not zero.
func If(body ...[]byte) []byte { return slices.Concat([]byte{0x04, 0x40}, slices.Concat(body...), end) }

// Br branches out of depth+1 enclosing blocks.
func Br(depth int) []byte { return append([]byte{0x0c}, u32(depth)...) }

// BrIf is Br if the popped i32 is not zero.
func BrIf(depth int) []byte { return append([]byte{0x0d}, u32(depth)...) }

// u32 encodes an index or a size in LEB128.
func u32(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

// s64 encodes a number in signed LEB128.
func s64(n int64) (b []byte) {
	for {
		low := byte(n & 0x7f)
		n >>= 7
		if n == 0 && low&0x40 == 0 || n == -1 && low&0x40 != 0 {
			return append(b, low)
		}
		b = append(b, low|0x80)
	}
}
