package meter

import ("testing";"time";"fmt";"os";"strings";"strconv";"runtime/debug")

func rss() int { b, _ := os.ReadFile("/proc/self/status"); for _, l := range strings.Split(string(b), "\n") { if strings.HasPrefix(l, "VmRSS") { f := strings.Fields(l); n, _ := strconv.Atoi(f[1]); return n/1024 } }; return 0 }
func TestZRec(t *testing.T) {
	if os.Getenv("CAL") == "" { t.Skip("calibration") }
	many := make([]ValueType, 500)
	for i := range many { many[i] = I64 }
	var wide []byte // 200 live values over a call
	for i := range 200 { wide = append(wide, join(get(0), i64(int64(i)), 0x7c)...) }
	wide = append(wide, join(get(0), i64(1), 0x7c, opCall, 2)...)
	for range 200 { wide = append(wide, 0x7c) }
	var wl []byte
	for i := range 500 { wl = append(wl, join(get(0), i64(int64(i)), 0x7c, set(1+i))...) }
	wl = join(wl, get(0), opCall, 3)
	for i := range 500 { wl = append(wl, join(get(1+i), 0x7c)...) }
	vec := make([]ValueType, 500); for i := range vec { vec[i] = V128 }
	var wv []byte
	for i := range 500 { wv = append(wv, join(get(0), opVector, 0x12, set(1+i))...) }
	wv = join(wv, get(0), opCall, 4)
	for i := range 500 { wv = append(wv, join(get(1+i), opVector, 0x1d, 0, 0x7c)...) }
	// callee with 1000 params passed on the stack
	a := assembly{functions: []function{
		{export: "small", body: join(opCall, 0, opCall, 0)},
		{export: "one", params: []ValueType{I64}, results: []ValueType{I64}, body: join(get(0), i64(1), 0x7c, opCall, 1, i64(1), 0x7c)},
		{export: "wide", params: []ValueType{I64}, results: []ValueType{I64}, body: wide},
		{export: "locals", params: []ValueType{I64}, results: []ValueType{I64}, locals: many, body: wl},
		{export: "vectors", params: []ValueType{I64}, results: []ValueType{I64}, locals: vec, body: wv},
	}}
	for _, fuelN := range []int64{1e6, 1e6, 1e6, 1e6, 2e6, 5e6, 10e6} {
		for _, n := range []string{"small", "one", "wide", "locals", "vectors"} {
			m := engines[0].load(t, metered(t, a.bytes(), Options{Fuel: fuelN}))
			debug.FreeOSMemory()
			r0 := rss()
			t0 := time.Now()
			var o outcome
			if n == "small" { o = call1(t.Context(), m, n) } else { o = call1(t.Context(), m, n, 1) }
			fmt.Println(fuelN, n, time.Since(t0), "rss+", rss()-r0, o.trap, int64(fuelOf(t, m).Get()))
		}
	}
}
