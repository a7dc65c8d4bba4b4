package wire

import "github.com/curfewmq/curfew/core/block"

const (
	smallest = 4 << 10   // of a read buffer
	largest  = 256 << 10 // as far as it grows because much is read; a frame may need more
)

// input is what was read from a connection and not yet understood. It lies in a block that messages may point into once
// they are published. It belongs to the reader.
type input struct {
	block      *block.Block // nil while nothing waits and nothing is read
	start, end int          // the bytes that wait
	size       int          // of the next block
	thin       int          // how many reads in a row would have done with a quarter of it
	read       int          // bytes since beat
}

func newInput() input { return input{size: smallest} }

// space is where to read to: never empty.
func (in *input) space() []byte {
	if in.block == nil {
		in.block = block.New(in.size)
	}
	return in.block.Buf[in.end:]
}

// unread is what was read and not consumed.
func (in *input) unread() []byte {
	if in.block == nil {
		return nil
	}
	return in.block.Buf[in.start:in.end]
}

// park gives a small block back that nothing waits in: a connection has none while it waits for something to read.
func (in *input) park() {
	if in.block != nil && in.start == in.end && len(in.block.Buf) == smallest {
		in.release()
	}
}

// added notes that n bytes were read into space, and chooses the size of the next block by how full this one is.
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

// consumed notes that the first n waiting bytes are done with, and makes space for more.
func (in *input) consumed(n int) {
	if in.block == nil {
		return
	}
	in.start += n
	rest, have := in.end-in.start, len(in.block.Buf)
	fits := have == in.size || have > in.size && rest > in.size/2 // a large block stays while a large frame comes in
	switch free := have - in.end; {
	case fits && rest == 0 && !in.block.Shared():
		in.start, in.end = 0, 0
	case fits && free >= have/2:
		// nobody looks behind end: read on there
	case fits && rest < have && !in.block.Shared():
		in.start, in.end = 0, copy(in.block.Buf, in.unread())
	case rest >= in.size:
		in.replace(2 * rest)
	default:
		in.replace(in.size)
	}
}

// replace moves what waits into a new block.
func (in *input) replace(size int) {
	k := block.New(size)
	rest := copy(k.Buf, in.unread())
	in.block.Release()
	in.block, in.start, in.end = k, 0, rest
}

// shrinkIdle is called now and then. It gives a large block back when little more than heartbeats was read since.
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
