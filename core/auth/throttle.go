package auth

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Origin is where somebody who wants to log in comes from.
type Origin struct {
	Host     string // the address, without a port
	Loopback bool   // it is this machine, or as good as that
	Now      hook.Instant
}

// rate is how often a login may fail: burst times at once, then once per interval.
type rate struct {
	burst    int
	interval time.Duration
}

// The rates are for one user from one host, and for all users from one host, which may be the address of many machines.
var (
	pairRate = rate{burst: 10, interval: time.Second}
	hostRate = rate{burst: 100, interval: 500 * time.Millisecond}
)

// maxThrottled bounds what is remembered of failed logins.
const maxThrottled = 1 << 14

// throttle slows down those who guess passwords. Any goroutine may use it.
type throttle struct {
	seed maphash.Seed

	mu    sync.Mutex // guards pasts
	pasts map[uint64]attemptHistory
}

// attemptHistory is what is remembered of a host, or of a user at a host.
type attemptHistory struct {
	settled hook.Instant // when the last failure will be as good as forgotten
	pending int          // logins that were let through and are undecided
}

func newThrottle() *throttle {
	return &throttle{seed: maphash.MakeSeed(), pasts: map[uint64]attemptHistory{}}
}

// throttleKeys are the keys of a login.
type throttleKeys struct{ pair, host uint64 }

func (t *throttle) suspects(host, user string) throttleKeys {
	host = network(host)
	return throttleKeys{
		pair: maphash.Comparable(t.seed, [2]string{host, user}),
		host: maphash.Comparable(t.seed, [1]string{host}),
	}
}

// network is an IPv4 address, or what a host of IPv6 has to itself.
func network(host string) string {
	a, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	a = a.Unmap().WithZone("")
	if a.Is4() {
		return a.String()
	}
	p, _ := a.Prefix(64) // it has as many bits
	return p.String()
}

// retry is how long it takes until one more login may fail; 0 = it may now.
func (r rate) retry(p attemptHistory, now hook.Instant) time.Duration {
	return max(0, p.settled.Sub(now)-time.Duration(r.burst-1)*r.interval)
}

// admits reports whether one more login may be undecided.
func (r rate) admits(p attemptHistory, now hook.Instant) bool {
	p.settled = max(p.settled, now).Add(time.Duration(p.pending) * r.interval)
	return r.retry(p, now) == 0
}

// fail counts a failure.
func (r rate) fail(p attemptHistory, now hook.Instant) attemptHistory {
	p.settled = max(p.settled, now).Add(r.interval)
	return p
}

// begin lets a login through, if it may fail with all that are undecided. It is to be ended then.
func (t *throttle) begin(s throttleKeys, now hook.Instant) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	pair, host := t.pasts[s.pair], t.pasts[s.host]
	if !pairRate.admits(pair, now) || !hostRate.admits(host, now) {
		return false
	}
	pair.pending++
	host.pending++
	t.put(s.pair, pair, now)
	t.put(s.host, host, now)
	return true
}

// end ends what begin let through.
func (t *throttle) end(s throttleKeys, now hook.Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, key := range [...]uint64{s.pair, s.host} {
		p, ok := t.pasts[key]
		if !ok {
			continue // it had to make room
		}
		p.pending = max(0, p.pending-1)
		t.put(key, p, now)
	}
}

// retry is how long it takes until one more login may fail, whatever is undecided.
func (t *throttle) retry(s throttleKeys, now hook.Instant) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(pairRate.retry(t.pasts[s.pair], now), hostRate.retry(t.pasts[s.host], now))
}

// fail counts a failed login.
func (t *throttle) fail(s throttleKeys, now hook.Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.put(s.pair, pairRate.fail(t.pasts[s.pair], now), now)
	t.put(s.host, hostRate.fail(t.pasts[s.host], now), now)
}

// put remembers p if there is something to remember, in the place of another if there are too many. The caller holds mu.
func (t *throttle) put(key uint64, p attemptHistory, now hook.Instant) {
	if p.pending == 0 && p.settled <= now {
		delete(t.pasts, key)
		return
	}
	if _, known := t.pasts[key]; !known && len(t.pasts) >= maxThrottled {
		t.makeRoom()
	}
	t.pasts[key] = p
}

// makeRoom forgets the oldest of a few.
func (t *throttle) makeRoom() {
	var oldest uint64
	const few = 16
	n := 0
	for key, p := range t.pasts {
		if n == 0 || p.settled < t.pasts[oldest].settled {
			oldest = key
		}
		if n++; n == few {
			break
		}
	}
	delete(t.pasts, oldest)
}
