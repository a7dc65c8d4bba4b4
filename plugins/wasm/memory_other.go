//go:build !linux && !darwin

package wasm

// region is memory on the Go heap.
type region struct{ all []byte }

func (*region) reserve(uint64) {}

// resize returns size bytes, with the previous content at the beginning.
func (r *region) resize(size uint64) []byte {
	if size > uint64(len(r.all)) {
		r.all = append(r.all, make([]byte, size-uint64(len(r.all)))...)
	}
	return r.all[:size]
}

func (r *region) release() { r.all = nil }
