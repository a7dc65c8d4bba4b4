package meter

import ("testing";"time";"fmt";"os";"strconv";"runtime/debug";"syscall")
func cpu() time.Duration { var u syscall.Rusage; syscall.Getrusage(0, &u); return time.Duration(u.Utime.Nano()+u.Stime.Nano()) }

func TestZBomb(t *testing.T) {
	if os.Getenv("BOMB") == "" { t.Skip("calibration") }
	nl := func(n int, v ValueType) []ValueType { o := make([]ValueType, n); for i := range o { o[i] = v }; return o }
	which := os.Getenv("BOMB")
	merges := func(n, v int) assembly {
		var tail []byte
		for i := range v { tail = append(tail, join(get(1+i), 0x1a)...) }
		f := function{params: []ValueType{I32}, locals: nl(v, I32)}
		var head []byte
		for i := range v { head = append(head, join(get(0), set(1+i))...) }
		f.body = join(head, rep(n, join(opBlock, emptyBlock, get(0), opBrIf, 0, opEnd)), tail)
		return one(f)
	}
	_ = merges
	N, _ := strconv.Atoi(os.Getenv("N")); V, _ := strconv.Atoi(os.Getenv("V"))
	var a assembly
	switch which {
	case "straight": a = one(function{params: []ValueType{I32}, body: rep(1<<20, join(get(0), i32(1), 0x6a, 0x1a))})
	case "add": a = one(function{params: []ValueType{I32}, results: []ValueType{I32}, body: join(get(0), rep(1<<20, join(get(0), 0x6a)))})
	case "add128k": a = one(function{params: []ValueType{I32}, results: []ValueType{I32}, body: join(get(0), rep(1<<17, join(get(0), 0x6a)))})
	case "blocks": a = one(function{params: []ValueType{I32}, body: rep(1<<20, join(opBlock, emptyBlock, get(0), opBrIf, 0, opEnd))})
	case "blocks128k": a = one(function{params: []ValueType{I32}, body: rep(1<<17, join(opBlock, emptyBlock, get(0), opBrIf, 0, opEnd))})
	case "deep": a = one(function{params: []ValueType{I32}, body: join(rep(50000, join(opBlock, emptyBlock)), rep(50000, join(get(0), opBrIf, 0, opEnd)))})
	case "merge1": a = merges(10000, 100)
	case "merge2": a = merges(10000, 1000)
	case "merge3": a = merges(100000, 100)
	case "loops": // 100 nested loops, v locals
		v := 10000
		var tail []byte
		for i := range v { tail = append(tail, join(get(1+i), i32(1), 0x6a, set(1+i))...) }
		a = one(function{params: []ValueType{I32}, locals: nl(v, I32), body: join(rep(100, join(opLoop, emptyBlock)), tail, rep(100, join(get(0), opBrIf, 0, opEnd)))})
	case "loops10": // 100 nested loops, v locals
		v := 1000
		var tail []byte
		for i := range v { tail = append(tail, join(get(1+i), i32(1), 0x6a, set(1+i))...) }
		a = one(function{params: []ValueType{I32}, locals: nl(v, I32), body: join(rep(100, join(opLoop, emptyBlock)), tail, rep(100, join(get(0), opBrIf, 0, opEnd)))})
	case "funcs": for range 100000 { a.functions = append(a.functions, function{}) }
	case "funcs10": for range 10000 { a.functions = append(a.functions, function{}) }
	case "flocals": for range 100 { a.functions = append(a.functions, function{locals: nl(10000, I64)}) }
	case "brtable": a = one(function{params: []ValueType{I32}, body: join(opBlock, emptyBlock, get(0), opBrTable, u32(1<<20), rep(1<<20+1, []byte{0}), opEnd)})
	case "brtables": a = one(function{params: []ValueType{I32}, body: rep(2000, join(opBlock, emptyBlock, get(0), opBrTable, u32(1000), rep(1001, []byte{0}), opEnd))})
	case "stack": a = one(function{params: []ValueType{I32}, body: join(rep(1<<19, get(0)), rep(1<<19, []byte{0x1a}))})
	case "calls": a = one(function{params: []ValueType{I32}, body: rep(1<<18, join(get(0), opCall, 0))})
	case "blocksN": a = one(function{params: []ValueType{I32}, body: rep(N, join(opBlock, emptyBlock, get(0), opBrIf, 0, opEnd))})
	case "ifsN": a = one(function{params: []ValueType{I32}, body: rep(N, join(get(0), opIf, emptyBlock, get(0), i32(1), 0x6a, set(0), opEnd))})
	case "deepN": a = one(function{params: []ValueType{I32}, body: join(rep(N, join(opBlock, emptyBlock)), rep(N, join(get(0), opBrIf, 0, opEnd)))})
	case "deepoutN": a = one(function{params: []ValueType{I32}, body: join(rep(N, join(opBlock, emptyBlock)), rep(N, join(get(0), opBrIf, u32(0), get(0), i32(1), 0x6a, set(0), opEnd)))})
	case "loopseqN": a = one(function{params: []ValueType{I32}, body: rep(N, join(opLoop, emptyBlock, get(0), i32(1), 0x6a, tee(0), opBrIf, 0, opEnd))})
	case "loopnestN": a = one(function{params: []ValueType{I32}, body: join(rep(N, join(opLoop, emptyBlock)), rep(N, join(get(0), i32(1), 0x6a, tee(0), opBrIf, 0, opEnd)))})
	case "loopsNV":
		var tail []byte
		for i := range V { tail = append(tail, join(get(1+i), i32(1), 0x6a, set(1+i))...) }
		a = one(function{params: []ValueType{I32}, locals: nl(V, I32), body: join(rep(N, join(opLoop, emptyBlock)), tail, rep(N, join(get(0), opBrIf, 0, opEnd)))})
	case "mergesNV": a = merges(N, V)
	case "tableN": a = one(function{params: []ValueType{I32}, body: join(opBlock, emptyBlock, get(0), opBrTable, u32(N), rep(N+1, []byte{0}), opEnd)})
	case "brifsN": a = one(function{params: []ValueType{I32}, body: join(opBlock, emptyBlock, rep(N, join(get(0), opBrIf, 0)), opEnd)})
	case "addN": a = one(function{params: []ValueType{I32}, results: []ValueType{I32}, body: join(get(0), rep(N, join(get(0), 0x6a)))})
	case "liveN": a = one(function{params: []ValueType{I32}, results: []ValueType{I32}, body: join(rep(N, join(get(0), i32(5), 0x6a)), rep(N-1, join(0x6a)))})
	case "loadN": a = one(function{params: []ValueType{I32}, results: []ValueType{I32}, body: join(get(0), rep(N, join(0x28, 2, 0)))})
	case "callN": a = one(function{params: []ValueType{I32}, body: rep(N, join(get(0), opCall, 0))})
	}
	b := a.bytes()
	t0 := time.Now()
	out, _, err := Rewrite(b, Options{})
	fmt.Println(which, len(b), "rewrite", time.Since(t0), len(out), err)
	if err != nil { return }
	debug.SetGCPercent(100)
	r := engines[0].runtime(t)
	for i, x := range [][]byte{b, out} {
		if i == 0 && os.Getenv("RAW") == "" { continue }
		c0 := cpu()
		_, err = r.CompileModule(t.Context(), x)
		fmt.Println("   compile", i, "cpu", cpu()-c0, "rss", rss(), err)
	}
}
