package backup

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
)

// Sink consumes the content of an archive. [Read] calls it from its own goroutine.
type Sink interface {
	// Begin gets the manifest, before anything else.
	Begin(m *Manifest) error
	// Create begins the next file of the manifest. Read writes its bytes in pieces, and closes it unless there was an error.
	Create(f *File) (io.WriteCloser, error)
}

// ErrIncomplete is the error for an archive that ends too early.
var ErrIncomplete = errors.New("the backup is not complete: it ends too early")

// Read reads an archive from an untrusted source up to its end. It returns the manifest if the archive is complete and all digests match.
// Whatever the archive contains, Read uses at most some tens of megabytes of memory, and passes on at most as many bytes
// as the manifest says.
func Read(r io.Reader, to Sink) (*Manifest, error) {
	plain, err := uncompressed(r)
	if err != nil {
		return nil, err
	}
	if err := begins(plain); err != nil {
		return nil, err
	}
	in := &reader{tar: tar.NewReader(plain), sum: sha256.New(), buf: make([]byte, piece)}
	m, err := in.all(to)
	if err != nil {
		return nil, err
	}
	return m, ends(plain)
}

// errForeign is the error for a file that is something else than a backup.
var errForeign = errors.New("this is not a backup of Curfew: \"curfew backup\" makes one, which begins with " + manifestName)

// begins refuses an archive that does not begin with the manifest.
func begins(plain *bufio.Reader) error {
	b, err := plain.Peek(len(manifestName))
	switch {
	case len(b) > 0 && !strings.HasPrefix(manifestName, string(b)):
		return errForeign
	case err != nil:
		return wrong(err)
	}
	return nil
}

// uncompressed returns the archive without its compression, if it has one.
func uncompressed(r io.Reader) (*bufio.Reader, error) {
	b := bufio.NewReaderSize(r, piece)
	magic, _ := b.Peek(2) // the error comes again when the archive is read
	if len(magic) < 2 || magic[0] != 0x1f || magic[1] != 0x8b {
		return b, nil
	}
	z, err := gzip.NewReader(b)
	if err != nil {
		return nil, wrong(err)
	}
	return bufio.NewReaderSize(z, piece), nil
}

// wrong returns the error for an archive that cannot be read further.
func wrong(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrIncomplete
	}
	return fmt.Errorf("the backup cannot be read: %w", err)
}

// ends checks that the archive is followed only by zeros, with which tar fills its last block.
func ends(r io.Reader) error {
	rest, err := io.ReadAll(io.LimitReader(r, maxTail+1))
	if err != nil {
		return wrong(err)
	}
	if len(rest) > maxTail || strings.Trim(string(rest), "\x00") != "" {
		return errors.New("there is data after the end of the backup")
	}
	return nil
}

// reader reads an archive.
type reader struct {
	tar  *tar.Reader
	sums strings.Builder
	sum  hash.Hash // of the current file
	buf  []byte
}

func (r *reader) all(to Sink) (*Manifest, error) {
	b, err := r.small(manifestName, maxManifest)
	if err != nil {
		return nil, err
	}
	m, err := parseManifest(b)
	if err != nil {
		return nil, err
	}
	if err := to.Begin(m); err != nil {
		return nil, err
	}
	for i := range m.Files {
		if err := r.file(&m.Files[i], to); err != nil {
			return nil, err
		}
	}
	want := r.sums.String()
	got, err := r.small(sumsName, int64(len(want)))
	if err != nil {
		return nil, err
	}
	if string(got) != want {
		return nil, fmt.Errorf("the backup was altered: the digest of %s is not the one in %s", differing(want, string(got)), sumsName)
	}
	if _, err := r.tar.Next(); !errors.Is(err, io.EOF) {
		if err == nil {
			err = errors.New("there is a file after " + sumsName)
		}
		return nil, wrong(err)
	}
	return m, nil
}

// differing returns the name of the first file whose line differs.
func differing(want, got string) string {
	for line := range strings.Lines(want) {
		rest, same := strings.CutPrefix(got, line)
		if !same {
			_, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
			return name
		}
		got = rest
	}
	return "a file"
}

// next begins the file that must come next, and returns its size.
func (r *reader) next(name string) (int64, error) {
	h, err := r.tar.Next()
	if err != nil {
		return 0, wrong(err)
	}
	if h.Name != name {
		return 0, fmt.Errorf("the archive has %s where %s belongs", shown(h.Name), name)
	}
	if h.Typeflag != tar.TypeReg {
		return 0, fmt.Errorf("%s: is not an ordinary file", name)
	}
	r.sum.Reset()
	return h.Size, nil
}

func (r *reader) end(name string) { fmt.Fprintf(&r.sums, "%x  %s\n", r.sum.Sum(nil), name) }

// small reads a file of at most the given size.
func (r *reader) small(name string, most int64) ([]byte, error) {
	size, err := r.next(name)
	if err != nil {
		return nil, err
	}
	if size > most {
		return nil, fmt.Errorf("%s has %d bytes: accepted are up to %d", name, size, most)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(r.tar, b); err != nil {
		return nil, wrong(err)
	}
	_, _ = r.sum.Write(b) // never fails
	r.end(name)
	return b, nil
}

func (r *reader) file(f *File, to Sink) error {
	size, err := r.next(f.Name)
	if err != nil {
		return err
	}
	if size != f.Bytes {
		return fmt.Errorf("%s has %d bytes, and %d in %s", f.Name, size, f.Bytes, manifestName)
	}
	out, err := to.Create(f)
	if err != nil {
		return err
	}
	if err := r.copy(out, size); err != nil {
		_ = out.Close() // err is more important
		return err
	}
	r.end(f.Name)
	return out.Close()
}

func (r *reader) copy(out io.Writer, size int64) error {
	for left := size; left > 0; {
		b := r.buf[:min(left, int64(len(r.buf)))]
		if _, err := io.ReadFull(r.tar, b); err != nil {
			return wrong(err)
		}
		left -= int64(len(b))
		_, _ = r.sum.Write(b) // never fails
		if _, err := out.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// Check is a [Sink] for checking an archive without keeping its content.
type Check struct{}

var _ Sink = Check{}

// Begin implements [Sink].
func (Check) Begin(*Manifest) error { return nil }

// Create implements [Sink].
func (Check) Create(*File) (io.WriteCloser, error) { return nowhere{io.Discard}, nil }

type nowhere struct{ io.Writer }

func (nowhere) Close() error { return nil }
