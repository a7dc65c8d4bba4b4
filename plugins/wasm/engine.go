package wasm

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// engine compiles modules, and retains compiled modules while a policy uses them. It is guarded by the host's lock for loading, except
// for modules.
type engine struct {
	memory  Size
	fuel    int64 // of a new instance
	runtime wazero.Runtime
	cache   wazero.CompilationCache // nil: none
	dir     cacheDir                // of cache

	mu      sync.Mutex           // guards modules and their uses
	modules map[string]*compiled // by digest

	rehearsals int // number of rehearsals that use it; the host's mu guards it
}

// compiled is a checked and compiled module. Only uses changes, which belongs to the engine.
type compiled struct {
	Manifest
	engine *engine
	code   wazero.CompiledModule
	uses   int
}

// short returns the first 8 bytes of the digest; see [hook.Verdict].
func (c *compiled) short() uint64 {
	n, err := strconv.ParseUint(c.Digest[:16], 16, 64)
	if err != nil {
		panic(fmt.Errorf("a digest of our own: %w", err))
	}
	return n
}

var errInterpreter = errors.New("modules cannot be compiled for " + runtime.GOOS + "/" + runtime.GOARCH +
	", only interpreted, which is some 50 times slower; set plugins.wasm.interpreter to true if that will do")

// compiles reports whether wazero's compiler knows this platform.
func compiles() bool {
	switch runtime.GOOS {
	case "linux", "darwin", "freebsd", "netbsd", "windows":
		return runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64"
	case "dragonfly", "solaris", "illumos":
		return runtime.GOARCH == "amd64"
	}
	return false
}

// newEngine starts the runtime. dir caches compiled code between starts.
func newEngine(c *Config, dir cacheDir) (*engine, error) {
	if !compiles() && !c.Interpreter {
		return nil, errInterpreter
	}
	e := &engine{memory: c.Memory, fuel: initFuel, dir: dir, modules: map[string]*compiled{}}
	config := wazero.NewRuntimeConfig().WithCoreFeatures(api.CoreFeaturesV2).WithMemoryLimitPages(uint32(c.Memory / pageSize))
	if dir != "" {
		dir.trim()
		cache, err := wazero.NewCompilationCacheWithDir(string(dir))
		if err != nil {
			return nil, fmt.Errorf("cache of compiled modules: %w", err)
		}
		e.cache, config = cache, config.WithCompilationCache(cache)
	}
	ctx := context.Background()
	e.runtime = wazero.NewRuntimeWithConfig(ctx, config)
	for name, functions := range map[string][]hostFunction{"policy_v1": policyFunctions(), "wasi_snapshot_preview1": wasiFunctions()} {
		if err := e.provide(ctx, name, functions); err != nil {
			return nil, errors.Join(fmt.Errorf("module %s: %w", name, err), e.close())
		}
	}
	return e, nil
}

// provide defines functions that modules can import.
func (e *engine) provide(ctx context.Context, module string, functions []hostFunction) error {
	b := e.runtime.NewHostModuleBuilder(module)
	for _, f := range functions {
		b.NewFunctionBuilder().WithGoModuleFunction(f.function(), valueTypes(f.Params), valueTypes(f.Results)).Export(f.Name)
	}
	_, err := b.Instantiate(ctx)
	return err
}

// compile checks a module, and compiles it unless that was done before. The caller releases it.
func (e *engine) compile(module []byte, o *Options) (*compiled, error) {
	metered, m, err := inspect(module, e.memory, e.fuel)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(m.checkDigest(o.Digest), m.checkGrants(o.Grants)); err != nil {
		return nil, err
	}
	if c := e.use(m.Digest); c != nil {
		return c, nil
	}
	e.dir.trim() // each module that is tried adds to it, even in a simulation
	code, err := e.runtime.CompileModule(context.Background(), metered)
	if e.dir.damaged(err) {
		e.dir.empty()
		code, err = e.runtime.CompileModule(context.Background(), metered)
	}
	if err != nil {
		return nil, fmt.Errorf("the module is not valid: %w", err)
	}
	c := &compiled{Manifest: m, engine: e, code: code, uses: 1}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.modules[m.Digest] = c
	return c, nil
}

// use returns a compiled module and counts one more use of it; nil if there is none.
func (e *engine) use(digest string) *compiled {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.modules[digest]
	if c != nil {
		c.uses++
	}
	return c
}

// release ends one use of a module. Its instances must be closed.
func (e *engine) release(c *compiled) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c.uses--
	if c.uses > 0 {
		return
	}
	delete(e.modules, c.Digest)
	_ = c.code.Close(context.Background()) // only removes it from a table
}

// close closes the runtime with all its instances.
func (e *engine) close() error {
	ctx := context.Background()
	err := e.runtime.Close(ctx)
	if e.cache != nil {
		err = errors.Join(err, e.cache.Close(ctx))
	}
	return err
}
