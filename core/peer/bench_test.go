package peer

import (
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/curfewmq/curfew/core/wlog"
)

// BenchmarkSend sends messages from one node to another over loopback.
func BenchmarkSend(b *testing.B) {
	for _, size := range []int{100, 1 << 10, 100 << 10, 4 << 20} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			one, two := startReal(b, 1, nil), startReal(b, 2, nil)
			var arrived atomic.Int64
			wake := make(chan struct{}, 1)
			two.options.Received = func(wlog.NodeID, uint32, []byte) {
				arrived.Add(1)
				select {
				case wake <- struct{}{}:
				default:
				}
			}
			one.Connect([]Node{two.node})
			two.Connect([]Node{one.node})
			for !connected(one) || !connected(two) {
				b.Elapsed()
			}
			body := make([]byte, size)
			inFlight := max(1, min(1000, 16<<20/size))
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				one.Send(2, 1, true, body, nil)
				for i-int(arrived.Load()) > inFlight {
					<-wake
				}
			}
			for int(arrived.Load()) < b.N {
				<-wake
			}
		})
	}
}
