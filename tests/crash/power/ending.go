package power

import (
	"context"
	"testing/synctest"
	"time"
)

// finish ends the broker in one of several ways, and starts it again.
func (r *run) finish() {
	switch n := r.random.IntN(12); {
	case n == 0:
		r.stop()
	case n < 3:
		r.ledger.counts.Kills++
		r.closeBooks()
		r.fs = r.fs.Kill()
		r.broker.abandon()
	default:
		r.ledger.counts.PowerLosses++
		r.goOnUntilDark()
		r.cutPower()
	}
	time.Sleep(time.Duration(r.random.IntN(200)) * time.Millisecond)
	r.boot()
}

// goOnUntilDark may have the power go while all are at work.
func (r *run) goOnUntilDark() {
	if !r.disk.quick && r.random.IntN(2) == 0 {
		return
	}
	r.fs.CutPower(r.random.IntN(60))
	for range 300 {
		if r.disk.isDark() || r.broken() {
			return
		}
		r.act(2)
		r.step()
	}
}

// closeBooks notes what is on the disk for good.
func (r *run) closeBooks() {
	reached := map[uint32]uint64{}
	for shard := range uint32(r.shards + 1) {
		upTo, files := r.disk.durable(shard)
		if reached[shard] = upTo; files > 2 {
			r.ledger.breach("%d files of shard %d have not been synced", files, shard)
		}
	}
	r.ledger.end(reached)
	for _, p := range r.places {
		if p.over(r.broker.clock()) {
			p.ended = true
			r.emptied(p)
		}
	}
}

// cutPower turns the power off. Of what the disk is at some may happen yet, and one thing halfway.
func (r *run) cutPower() {
	for r.disk.pending() > 0 && r.random.IntN(3) == 0 {
		r.change()
		synctest.Wait()
	}
	r.closeBooks()
	if !r.disk.isDark() && r.disk.pending() > 0 && r.random.IntN(2) == 0 {
		r.fs.CutPower(0)
		r.broker.over = true
		r.trace("cut %s", r.disk.let(r.random.IntN))
		synctest.Wait()
	}
	r.fs = r.fs.LosePower()
	r.trace("power lost")
	r.broker.abandon()
	r.ledger.powerLost(r.places)
}

// stop ends the broker in good order.
func (r *run) stop() {
	r.ledger.counts.Stops++
	r.broker.over = true
	r.fs.Inject(nil)
	var late []*client // that wait for a disk that is full
	for _, c := range r.broker.clients {
		for n := 0; n < 1000 && !c.calm(); n++ {
			r.calmDown()
		}
		if !c.calm() {
			late = append(late, c)
			continue
		}
		c.leave(r.broker.clock())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		defer close(done)
		done <- r.broker.store.Close(ctx)
		for _, c := range late {
			c.await()
			c.leave(r.broker.clock())
		}
	}()
	for {
		synctest.Wait()
		select {
		case err, more := <-done:
			if err != nil && !r.ailing {
				r.ledger.breach("the broker does not end well: %v", err)
			}
			if more {
				continue
			}
			r.closeBooks()
			r.fs = r.fs.Kill()
			return
		default:
		}
		if r.disk.pending() == 0 {
			time.Sleep(time.Millisecond)
			continue
		}
		r.change()
	}
}

func (r *run) calmDown() {
	synctest.Wait()
	if r.disk.pending() > 0 {
		r.change()
		return
	}
	time.Sleep(time.Millisecond)
}

// drain lets everything die that is to die, and sees to it that what is left stays as it is through a proper end.
func (r *run) drain() {
	r.dismiss()
	for range 20 {
		r.settle()
		time.Sleep(50 * time.Millisecond)
	}
	r.census()
	if r.broken() {
		return
	}
	r.stop()
	r.boot()
}

// dismiss has all clients leave.
func (r *run) dismiss() {
	r.settle()
	for _, c := range r.broker.clients {
		c.leave(r.broker.clock())
	}
	r.broker.clients = nil
	for _, p := range r.places {
		if p.busy > 0 {
			p.busy, p.used = 0, r.broker.clock()
		}
	}
	for _, m := range r.ledger.messages {
		m.holder = nil
	}
	r.settle()
}
