package dedup

import (
	"runtime"
	"strconv"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// large is a full cache of a million messages.
func large(tb testing.TB) *cache {
	tb.Helper()
	const n = 1_000_000
	c := (&budget{most: 2 * n}).newCache(n)
	for i := range uint64(n) {
		c.admit(now, numbered(i), 0)
	}
	return c
}

// numbered returns a key that looks like a hash.
func numbered(i uint64) key { return key{mix(i), mix(^i)} }

// mix is a step of splitmix64.
func mix(i uint64) uint64 {
	i *= 0x9E3779B97F4A7C15
	i = (i ^ i>>30) * 0xBF58476D1CE4E5B9
	i = (i ^ i>>27) * 0x94D049BB133111EB
	return i ^ i>>31
}

func BenchmarkNew(b *testing.B) {
	c := large(b)
	i := uint64(1_000_000)
	for b.Loop() {
		c.admit(now, numbered(i), 0)
		i++
	}
}

func BenchmarkDuplicate(b *testing.B) {
	c := large(b)
	i := uint64(0)
	for b.Loop() {
		c.admit(now, numbered(i%1_000_000), 0)
		i += 7919
	}
}

func BenchmarkMemory(b *testing.B) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var c *cache
	for b.Loop() {
		c = large(b)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(c.count()), "B/entry")
	runtime.KeepAlive(c)
}

// BenchmarkExchange routes duplicates through an exchange of the type, including the reading of their headers.
func BenchmarkExchange(b *testing.B) {
	e := newType(b, args("x-cache-size", 1_000_000))
	for i := range 1000 {
		routes(b, e, now, with(strconv.Itoa(i)))
	}
	hooktest.BenchRoute(b, e, hooktest.Publish(now, "", with("7")))
}

// BenchmarkQueue enqueues a message and lets it leave.
func BenchmarkQueue(b *testing.B) {
	h := newHeld(b, on)
	ms, vs := make([]hook.Message, 1), make([]hook.Verdict, 1)
	hooktest.Bind(ms, with("order-1234567890"))
	b.ReportAllocs()
	for b.Loop() {
		vs[0] = hook.Verdict{}
		h.hooks.OnEnqueue(now, ms, vs)
		h.hooks.OnGone(ms)
	}
}
