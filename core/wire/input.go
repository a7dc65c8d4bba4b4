package wire

import "github.com/curfewmq/curfew/core/block"

const (
	smallest = 4 << 10   // read buffer
	largest  = 256 << 10 // read buffer, unless a frame needs more
)

// input holds bytes that were read and not yet consumed. They lie in a block, which published messages may refer to. It belongs to the
// reader goroutine.
type input struct {
	block      *block.Block // nil while nothing is unread and nothing is being read
	start, end int          // of the unread bytes
	size       int          // of the next block
	thin       int          // reads in a row that would have fit into a quarter of it
	read       int          // bytes since shrinkIdle
}

func newInput() input { return input{size: smallest} }

// space returns the memory to read into, which is never empty.
func (in *input) space() []byte {
	if in.block == nil {
		in.block = block.New(in.size)
	}
	return in.block.Buf[in.end:]
}

// unread returns the bytes that were not yet consumed.
func (in *input) unread() []byte {
	if in.block == nil {
		return nil
	}
	return in.block.Buf[in.start:in.end]
}

// park releases a small block without unread bytes, so that a connection that waits for input has no buffer.
func (in *input) park() {
	if in.block != nil && in.start == in.end && len(in.block.Buf) == smallest {
		in.release()
	}
}

// added records that n bytes were read into space, and chooses the size of the next block by how full this one is.
func (in *input) added(n int) {
	in.end += n
	in.read += n
	switch {
	case in.end == len(in.block.Buf):
		in.size, in.thin = min(2*in.size, largest), 0
	case in.end > in.size/4 || in.size == smallest:
		in.thin = 0
	default:
		in.thin++
	}
	const patience = 64
	if in.thin == patience {
		in.size, in.thin = in.size/2, 0
	}
}

// consumed drops the first n unread bytes, and makes space for more.
func (in *input) consumed(n int) {
	if in.block == nil {
		return
	}
	in.start += n
	rest, have := in.end-in.start, len(in.block.Buf)
	fits := have == in.size || have > in.size && rest > in.size/2 // a large block stays while a large frame arrives
	switch free := have - in.end; {
	case fits && rest == 0 && !in.block.Shared():
		in.start, in.end = 0, 0
	case fits && free >= have/2:
		// no message refers to the bytes after end: keep reading there
	case fits && rest < have && !in.block.Shared():
		in.start, in.end = 0, copy(in.block.Buf, in.unread())
	case rest >= in.size:
		in.replace(2 * rest)
	default:
		in.replace(in.size)
	}
}

// replace moves the unread bytes to a new block.
func (in *input) replace(size int) {
	k := block.New(size)
	rest := copy(k.Buf, in.unread())
	in.block.Release()
	in.block, in.start, in.end = k, 0, rest
}

// shrinkIdle replaces a large block by a small one if little more than heartbeats was read since the previous call.
func (in *input) shrinkIdle() {
	idle := in.read < smallest/4
	in.read = 0
	if !idle || in.block == nil || len(in.block.Buf) == smallest || len(in.unread()) >= smallest {
		return
	}
	in.size, in.thin = smallest, 0
	in.replace(smallest)
}

func (in *input) release() {
	if in.block != nil {
		in.block.Release()
	}
	in.block, in.start, in.end = nil, 0, 0
}
