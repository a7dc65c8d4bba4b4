package spill

import "testing"

// Free pages lose their disk space, except for some while others are in use.
func TestFreePagesReturnDiskSpace(t *testing.T) {
	p, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	blocks := func() int64 {
		p.background.Wait()
		info, err := p.file.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return onDisk(info)
	}
	const n = 3 * retainedPages
	for range n {
		if _, err := p.file.WriteAt([]byte("x"), p.take(1).first*PageSize); err != nil {
			t.Fatal(err)
		}
	}
	most := blocks()
	// What is given while holes are made may stay until there is more: here they are made when the last one is given.
	tidy := func(yes bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.punching = yes
	}
	tidy(true)
	for i := range int64(n - 2) {
		p.Give(Pages{first: i})
	}
	tidy(false)
	p.Give(Pages{first: n - 2})
	if left := blocks(); !p.noHoles && left > most*2/5 {
		t.Errorf("%d bytes are left of %d with one page in use", left, most)
	}
	seen := map[int64]bool{n - 1: true}
	for range n {
		page := p.take(1).first
		if seen[page] {
			t.Fatalf("page %d was given to two", page)
		}
		seen[page] = true
	}
	for page := range seen {
		p.Give(Pages{first: page})
	}
	if left := blocks(); left != 0 || p.size != 0 {
		t.Errorf("%d bytes are left with no page in use", left)
	}
}

// A queue gave its pages back after the file was closed, and a hole was made with a descriptor that another file may have by then.
func TestNoHolesAreMadeInAClosedFile(t *testing.T) {
	p, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l := p.take(2 * PageSize)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	p.Give(l)
	p.background.Wait()
	if p.size == 0 || p.noHoles {
		t.Error("the file was changed")
	}
}
