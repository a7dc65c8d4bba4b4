package amqp

import "testing"

func benchDelivery(b *testing.B, props []byte, size int) {
	b.Helper()
	body, buf := make([]byte, size), make([]byte, 0, 32<<10)
	exchange, key := []byte("orders"), []byte("orders.created")
	b.ReportAllocs()
	for b.Loop() {
		out := AppendDeliver(buf, 1, "amq.ctag-1", 123456, false, exchange, key)
		out = AppendContentHeader(out, 1, uint64(size), props)
		AppendBody(out, 1, body, 131072)
	}
}

func BenchmarkDelivery(b *testing.B) {
	rich := richProps()
	b.Run("16B", func(b *testing.B) { benchDelivery(b, []byte{0x10, 0, 1}, 16) })
	b.Run("1KiB", func(b *testing.B) { benchDelivery(b, []byte{0x10, 0, 1}, 1<<10) })
	b.Run("16KiB", func(b *testing.B) { benchDelivery(b, []byte{0x10, 0, 1}, 16<<10) })
	b.Run("16B-rich", func(b *testing.B) { benchDelivery(b, rich.Append(nil), 16) })
}

// BenchmarkPublish measures the codec's work for an incoming message: three frames, the method, the properties.
func BenchmarkPublish(b *testing.B) {
	rich := richProps()
	for name, props := range map[string][]byte{"plain": {0x10, 0, 1}, "rich": rich.Append(nil)} {
		b.Run(name, func(b *testing.B) {
			in := AppendMethod(nil, 1, &BasicPublish{Exchange: "orders", RoutingKey: "orders.created"})
			in = AppendContentHeader(in, 1, 16, props)
			in = AppendBody(in, 1, make([]byte, 16), 131072)
			b.ReportAllocs()
			for b.Loop() {
				rest := in
				for len(rest) > 0 {
					f, n, _ := NextFrame(rest, 131072)
					switch f.Type {
					case FrameMethod:
						_, _, _, _, _ = ParsePublish(f.Payload[methodIDSize:])
					case FrameHeader:
						h, _ := ParseContentHeader(f.Payload)
						_, _ = ScanProps(h.Props)
					}
					rest = rest[n:]
				}
			}
		})
	}
}

func BenchmarkAppendAck(b *testing.B) {
	buf := make([]byte, 0, 64)
	b.ReportAllocs()
	for b.Loop() {
		AppendAck(buf, 1, 7, true)
	}
}

func BenchmarkParseMethod(b *testing.B) {
	frame := AppendMethod(nil, 1, &QueueDeclare{Queue: "leases", Durable: true, Arguments: Table{{"x-expires", int32(60000)}}})
	b.ReportAllocs()
	for b.Loop() {
		_, _ = ParseMethod(frame[frameHead : len(frame)-1])
	}
}

func BenchmarkAppendMethod(b *testing.B) {
	buf := make([]byte, 0, 128)
	b.ReportAllocs()
	for b.Loop() {
		AppendMethod(buf, 1, &QueueDeclareOK{Queue: "leases", MessageCount: 1})
	}
}

func BenchmarkRewriteProps(b *testing.B) {
	rich := richProps()
	raw := rich.Append(nil)
	x, _ := ScanProps(raw)
	headers, buf := RawTable(AppendTable(nil, allTypes())[4:]), make([]byte, 0, 1<<10)
	b.ReportAllocs()
	for b.Loop() {
		RewriteProps(buf, raw, x, PropEdit{Headers: headers, DropExpiration: true})
	}
}

func BenchmarkLookup(b *testing.B) {
	raw := RawTable(AppendTable(nil, allTypes())[4:])
	b.ReportAllocs()
	for b.Loop() {
		raw.LookupBytes("longstr")
	}
}

func BenchmarkParseTable(b *testing.B) {
	in := AppendTable(nil, allTypes())
	b.ReportAllocs()
	for b.Loop() {
		_, _, _ = ParseTable(in)
	}
}
