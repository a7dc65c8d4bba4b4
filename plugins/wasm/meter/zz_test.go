package meter

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
)

func TestZZ(t *testing.T) {
	b, _ := os.ReadFile("/tmp/meter/go.wasm")
	t0 := time.Now()
	out, info, err := Rewrite(b, Options{Fuel: 1e9})
	fmt.Println(time.Since(t0), len(b), len(out), err, len(info.Imports), len(info.Exports), info.Memory, info.Functions)
	if err != nil {
		t.Fatal(err)
	}
	os.WriteFile("/tmp/meter/go.metered.wasm", out, 0o644)
	for i := range 5 {
		t0 = time.Now()
		Rewrite(b, Options{})
		fmt.Println(i, time.Since(t0))
	}
	r := wazero.NewRuntime(context.Background())
	c0 := cpu()
	_, err = r.CompileModule(context.Background(), b)
	fmt.Println("compile raw cpu", cpu()-c0, err)
	c0 = cpu()
	_, err = r.CompileModule(context.Background(), out)
	fmt.Println("compile metered cpu", cpu()-c0, err)
}
