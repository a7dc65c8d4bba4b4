package meter

import ("testing";"os";"fmt";"path/filepath")

func TestZStat(t *testing.T) {
	if os.Getenv("CAL") == "" { t.Skip("calibration") }
	files := []string{"/tmp/meter/go.wasm", "/tmp/meter/big.wasm"}
	filepath.Walk("/root/go/pkg/mod/github.com/tetratelabs/wazero@v1.12.0", func(p string, i os.FileInfo, err error) error { if filepath.Ext(p) == ".wasm" && i.Size() > 30000 { files = append(files, p) }; return nil })
	for _, f := range files {
	b, _ := os.ReadFile(f)
	o, _ := Options{ModuleBytes: 1<<30}.withDefaults()
	m, err := parse(b, o)
	if err != nil { fmt.Println(f, err); continue }
	section := m.sections[codeSection]
	r := reader{b: m.b, pos: section.start, end: section.end, function: -1}
	s := &scanner{m: m}
	var ME, pts, charged, bulks, maxb, maxl, due, maxp, maxpl, maxtab int
	for i := range section.count {
		inner := r.within(int(r.u32()))
		s.reader = inner
		maxb = max(maxb, inner.end-inner.pos)
		_, d := s.declarations()
		maxl = max(maxl, d)
		s.scan(len(m.types[m.functions[m.imported[0]+i]].params)+d, d, 0)
		if s.err != nil { fmt.Println(s.err) }
		maxp = max(maxp, len(s.points)); ME = max(ME, s.effort.units(s.locals))
		maxpl = max(maxpl, len(s.points)*d)
		for _, p := range s.points { pts++; if p.bulk != 0 { bulks++ }; if p.due {due++}; if p.units+p.folded > 0 || p.due {charged++} }
	}
	fmt.Println(filepath.Base(f), len(b), "functions", section.count, "points", pts, "charged", charged, "due", due, "bulks", bulks, "maxbytes", maxb, "maxlocals", maxl, "maxpoints", maxp, "points*locals", maxpl, maxtab, "types", len(m.types), "globals", len(m.globals), "elements", m.elements, "maxeffort", ME, "total", s.total, "data", m.sections[11].count)
	}
}
