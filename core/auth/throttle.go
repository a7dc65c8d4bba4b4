package auth

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Origin is where a login comes from.
type Origin struct {
	Host     string // the address, without a port
	Loopback bool   // the client is on this machine, or trusted like it
	Now      hook.Instant
	// Waits is called with true when the login begins to wait for its turn, and with false when it stops waiting; nil = it is not called.
	Waits func(waits bool)
}

// rate limits failing logins: burst of them at once, then one per interval.
type rate struct {
	burst    int
	interval time.Duration
}

// pairRate limits one user from one host. hostRate limits all users from one host, which may be the address of many machines.
var (
	pairRate = rate{burst: 10, interval: time.Second}
	hostRate = rate{burst: 100, interval: 500 * time.Millisecond}
)

// maxThrottled bounds the number of histories that are kept.
const maxThrottled = 1 << 14

// throttle limits failed logins, so that passwords cannot be guessed quickly. It is safe for concurrent use.
type throttle struct {
	seed maphash.Seed

	mu        sync.Mutex // guards histories
	histories map[uint64]attemptHistory
}

// attemptHistory is the history of failed logins of a host, or of a user at a host.
type attemptHistory struct {
	forgotten hook.Instant // when the last failure stops counting
	pending   int          // logins that were admitted and are undecided
}

func newThrottle() *throttle {
	return &throttle{seed: maphash.MakeSeed(), histories: map[uint64]attemptHistory{}}
}

// throttleKeys are the keys of a login's histories.
type throttleKeys struct{ pair, host uint64 }

// keys returns the keys of a login of a user from a [network].
func (t *throttle) keys(network, user string) throttleKeys {
	return throttleKeys{
		pair: maphash.Comparable(t.seed, [2]string{network, user}),
		host: maphash.Comparable(t.seed, [1]string{network}),
	}
}

// network returns an IPv4 address, or the /64 that an IPv6 host usually has to itself.
func network(host string) string {
	a, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	a = a.Unmap().WithZone("")
	if a.Is4() {
		return a.String()
	}
	p, _ := a.Prefix(64) // no error: an IPv6 address has as many bits
	return p.String()
}

// retry returns the time until one more login may fail; 0 = it may fail now.
func (r rate) retry(h attemptHistory, now hook.Instant) time.Duration {
	return max(0, h.forgotten.Sub(now)-time.Duration(r.burst-1)*r.interval)
}

// admits reports whether one more login may be undecided.
func (r rate) admits(h attemptHistory, now hook.Instant) bool {
	h.forgotten = max(h.forgotten, now).Add(time.Duration(h.pending) * r.interval)
	return r.retry(h, now) == 0
}

// fail counts a failure.
func (r rate) fail(h attemptHistory, now hook.Instant) attemptHistory {
	h.forgotten = max(h.forgotten, now).Add(r.interval)
	return h
}

// begin admits a login if it may still fail along with all undecided ones. The caller ends an admitted login.
func (t *throttle) begin(k throttleKeys, now hook.Instant) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	pair, host := t.histories[k.pair], t.histories[k.host]
	if !pairRate.admits(pair, now) || !hostRate.admits(host, now) {
		return false
	}
	pair.pending++
	host.pending++
	t.put(k.pair, pair, now)
	t.put(k.host, host, now)
	return true
}

// end ends a login that begin admitted.
func (t *throttle) end(k throttleKeys, now hook.Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, key := range [...]uint64{k.pair, k.host} {
		if h, ok := t.histories[key]; ok { // it may have been evicted
			h.pending = max(0, h.pending-1)
			t.put(key, h, now)
		}
	}
}

// retry returns the time until one more login may fail, not counting undecided ones.
func (t *throttle) retry(k throttleKeys, now hook.Instant) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(pairRate.retry(t.histories[k.pair], now), hostRate.retry(t.histories[k.host], now))
}

// fail counts a failed login.
func (t *throttle) fail(k throttleKeys, now hook.Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.put(k.pair, pairRate.fail(t.histories[k.pair], now), now)
	t.put(k.host, hostRate.fail(t.histories[k.host], now), now)
}

// put stores a history unless it is over. If there are too many, it evicts another one. The caller holds mu.
func (t *throttle) put(key uint64, h attemptHistory, now hook.Instant) {
	if h.pending == 0 && h.forgotten <= now {
		delete(t.histories, key)
		return
	}
	if _, known := t.histories[key]; !known && len(t.histories) >= maxThrottled {
		t.evict()
	}
	t.histories[key] = h
}

// evict removes the oldest of a few histories.
func (t *throttle) evict() {
	const few = 16
	var oldest uint64
	n := 0
	for key, h := range t.histories {
		if n == 0 || h.forgotten < t.histories[oldest].forgotten {
			oldest = key
		}
		if n++; n == few {
			break
		}
	}
	delete(t.histories, oldest)
}
