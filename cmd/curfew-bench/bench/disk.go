package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// disk is a file to which a page is written and synced before each message, in order to compare the time of a confirm with that of the
// disk at the same moment. It belongs to a publisher.
type disk struct {
	file    *os.File
	clock   clock
	page    []byte
	at      int64 // position of the next page in the file
	latency histogram
}

const (
	diskPage = 4 << 10 // bytes written at a time
	diskSize = 4 << 20 // bytes in the file, which is written before the measurement
)

// openDisk creates the file in a folder.
func openDisk(dir string, c clock) (*disk, error) {
	f, err := os.CreateTemp(dir, "curfew-bench-*")
	if err != nil {
		return nil, fmt.Errorf("--fdatasync: %w", err)
	}
	d := &disk{file: f, clock: c, page: make([]byte, diskPage)}
	if _, err = f.Write(make([]byte, diskSize)); err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--fdatasync: %w", err), d.close())
	}
	return d, nil
}

// measure writes and syncs one page.
func (d *disk) measure() error {
	began := d.clock.now()
	_, err := d.file.WriteAt(d.page, d.at)
	if err == nil {
		err = syncData(d.file)
	}
	if err != nil {
		return fmt.Errorf("--fdatasync: %w", err)
	}
	d.latency.record(d.clock.now()-began, 1)
	d.at = (d.at + diskPage) % diskSize
	return nil
}

func (d *disk) close() error { return errors.Join(d.file.Close(), os.Remove(d.file.Name())) }

// compareDisks adds the times of the disks, and how many times longer a confirm takes.
func (l *load) compareDisks(r *report) {
	var disks, confirms histogram
	for _, d := range l.disks {
		disks.merge(&d.latency)
	}
	if disks.n == 0 {
		return
	}
	for _, p := range l.f.publishers {
		h, _ := p.latency()
		confirms.merge(h)
	}
	r.quantiles("fdatasync", "fdatasync latency", &disks)
	if median := disks.quantile(0.5); median > 0 {
		r.add("confirm_per_fdatasync", "confirm latency p50 per fdatasync p50", float64(confirms.quantile(0.5))/float64(median), "")
	}
}

func floorFlags(f flags) {
	f.sized(16, 0)
	f.batched(1)
	f.paced()
	f.lasting()
	f.o.publishers, f.o.consumers, f.o.queues = 1, 1, 1
}

// floor loads a relay in the same way as other scenarios load a broker, and samples the relay's process.
type floor struct{ *load }

func startFloor(l *load) measurement { return floor{l} }

func (l floor) run(ctx context.Context) error {
	r, err := l.relay()
	if err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	l.cleanUp(r.stop)
	l.o.pid = int64(r.pid)
	l.sample(&l.start)
	from, err := l.plain(ctx, r.addr) // first, because the relay reads from its first client
	if err != nil {
		return err
	}
	c := l.content([]string{l.prefix + "0"}, 0)
	c.delivered = true
	p, err := l.f.publisherOn(from, c, 0)
	if err != nil {
		return err
	}
	to, err := l.plain(ctx, r.addr)
	if err != nil {
		return err
	}
	l.f.start(l.f.consumer(to).run)
	if err := l.assign(p, 0); err != nil {
		return err
	}
	return l.measured(l.consumed)
}

// plain opens a connection without a handshake.
func (e *env) plain(ctx context.Context, addr string) (*conn, error) {
	nc, err := e.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return &conn{nc: nc, in: make([]byte, readSize), frameMax: frameMax, relayed: true}, nil
}
