package wasm

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/plugins/wasm/meter"
	"github.com/curfewmq/curfew/sdk/abi"
)

// Manifest describes a module, without executing any of it.
type Manifest struct {
	Digest string // SHA-256, in hexadecimal
	Size   int    // bytes
	// Hooks are the exported hooks.
	Hooks []abi.Hook
	// Imports are the broker's functions that it uses, and Grants the grants that they need. Dead-lettering also needs the grant route,
	// which does not follow from the imports.
	Imports []string
	Grants  []abi.Grant
	// WASI means that it imports functions of an operating system, as Go programs do.
	WASI bool
	// Go means that the module was made by Go's compiler. The module says so, unless another tool has removed that information.
	Go bool

	exports map[string]bool // only names in [abi.Exports]
	memory  bool
	pages   uint32 // of memory at the start
}

func (m *Manifest) has(h abi.Hook) bool { return slices.Contains(m.Hooks, h) }

// imports reports whether the module imports one of the broker's functions with these names.
func (m *Manifest) imports(names ...string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(m.Imports, n) })
}

// initFuel is the fuel for preparing a new instance. An endless start delays the garbage collector by some 200 ms until this fuel is used
// up. Go programs need a hundredth of it.
const initFuel = 250_000_000

// Inspect checks a module without executing it, and describes what it needs.
func Inspect(module []byte) (Manifest, error) {
	_, m, err := inspect(module, defaultMemory, initFuel)
	return m, err
}

// inspect is Inspect; it also returns the metered module, for instances with this memory and initial fuel.
func inspect(module []byte, memory Size, fuel int64) ([]byte, Manifest, error) {
	sum := sha256.Sum256(module)
	m := Manifest{Digest: hex.EncodeToString(sum[:]), Size: len(module), exports: map[string]bool{}}
	metered, info, err := meter.Rewrite(module, meter.Options{Fuel: fuel, ModuleBytes: abi.MaxModule, MemoryPages: uint32(memory / pageSize)})
	if err != nil {
		return nil, m, err
	}
	m.Go = info.Go
	if info.Memory != nil {
		m.memory, m.pages = true, info.Memory.Min
	}
	if err := m.checkExports(info.Exports); err != nil {
		return nil, m, err
	}
	var errs []error
	for _, i := range info.Imports {
		errs = append(errs, m.checkImport(i))
	}
	slices.Sort(m.Grants)
	m.Grants = slices.Compact(m.Grants)
	return metered, m, errors.Join(append(errs, m.checkMemory())...)
}

func (m *Manifest) checkExports(exports []meter.Export) error {
	if err := checkVersion(exports); err != nil {
		return err
	}
	var errs []error
	for _, want := range abi.Exports() {
		i := slices.IndexFunc(exports, func(e meter.Export) bool { return e.Name == want.Name })
		if i < 0 {
			continue
		}
		m.exports[want.Name] = true
		if t := exports[i].Type; !isType(t, want.Signature) {
			errs = append(errs, fmt.Errorf("export %s is a %s, want %s", want.Name, t, want.Signature))
		}
	}
	for h := range abi.Hooks {
		if m.exports[h.String()] {
			m.Hooks = append(m.Hooks, h)
		}
	}
	if len(m.Hooks) == 0 {
		errs = append(errs, errors.New("the module exports none of the hooks "+hookNames()))
	}
	return errors.Join(errs...)
}

func hookNames() string {
	var names []string
	for h := range abi.Hooks {
		names = append(names, h.String())
	}
	return strings.Join(names, ", ")
}

var versionName = regexp.MustCompile(`^` + abi.Prefix + `[0-9]+$`)

// checkVersion requires the export that announces the version.
func checkVersion(exports []meter.Export) error {
	var others []string
	for _, e := range exports {
		if e.Name == abi.Name {
			return nil
		}
		if versionName.MatchString(e.Name) {
			others = append(others, e.Name)
		}
	}
	if len(others) > 0 {
		return fmt.Errorf("the module speaks %s, this broker %s", strings.Join(others, " and "), abi.Name)
	}
	return fmt.Errorf("the module exports no %s: it is not an expiry policy, or its exports were left out when it was built", abi.Name)
}

func (m *Manifest) checkImport(i meter.Import) error {
	name := i.Module + "." + i.Name
	if i.Type.Kind != meter.Func {
		return fmt.Errorf("the module imports the %s %s; only functions can be imported", i.Type.Kind, name)
	}
	switch {
	case i.Module == abi.Name:
		return m.checkFunction(i)
	case versionName.MatchString(i.Module):
		return fmt.Errorf("the module speaks %s, this broker %s", i.Module, abi.Name)
	case i.Module == abi.WASI:
		m.WASI = true
		return checkWASI(i)
	}
	return fmt.Errorf("the module imports %s, which is not available; available are functions of %s and, for compilers that need it, %s", name, abi.Name, abi.WASI)
}

func (m *Manifest) checkFunction(i meter.Import) error {
	for _, f := range abi.Imports() {
		if f.Name != i.Name {
			continue
		}
		if !isType(i.Type, f.Signature) {
			return fmt.Errorf("import %s.%s is a %s, want %s", i.Module, i.Name, i.Type, f.Signature)
		}
		m.Imports = append(m.Imports, i.Name)
		if f.Grant != abi.Always {
			m.Grants = append(m.Grants, f.Grant)
		}
		return nil
	}
	return fmt.Errorf("the module imports %s.%s, which this broker does not know", i.Module, i.Name)
}

func checkWASI(i meter.Import) error {
	f, ok := wasiFunction(i.Name)
	if !ok {
		return fmt.Errorf("the module imports %s.%s, which does not exist", i.Module, i.Name)
	}
	if !isType(i.Type, f.Signature) {
		return fmt.Errorf("import %s.%s is a %s, want %s", i.Module, i.Name, i.Type, f.Signature)
	}
	return nil
}

func isType(t meter.Type, want abi.Signature) bool {
	same := func(a []meter.ValueType, b []abi.Value) bool {
		return slices.EqualFunc(a, b, func(x meter.ValueType, y abi.Value) bool { return byte(x) == byte(y) })
	}
	return t.Kind == meter.Func && same(t.Params, want.Params) && same(t.Results, want.Results)
}

// checkMemory refuses a module that lacks the memory for its imports or exports.
func (m *Manifest) checkMemory() error {
	if !m.memory && (len(m.Imports) > 0 || m.WASI || m.exports[abi.ExportBuffer]) {
		return errors.New("the module has no memory, which its imports or policy_buf need")
	}
	return nil
}

// checkGrants refuses a module whose imports need missing grants.
func (m *Manifest) checkGrants(granted []string) error {
	var missing []string
	for _, f := range abi.Imports() {
		if f.Grant != abi.Always && slices.Contains(m.Imports, f.Name) && !slices.Contains(granted, string(f.Grant)) {
			missing = append(missing, fmt.Sprintf("%s.%s, which needs the grant %s", abi.Name, f.Name, f.Grant))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("the module imports %s; granted: %s", strings.Join(missing, ", and "), list(granted))
}

func list(items []string) string {
	if len(items) == 0 {
		return "nothing"
	}
	return strings.Join(items, ", ")
}

// checkDigest refuses a module whose digest is not want; "" accepts any.
func (m *Manifest) checkDigest(want string) error {
	want = strings.ToLower(strings.TrimPrefix(want, "sha256:"))
	if raw, err := hex.DecodeString(want); want != "" && (err != nil || len(raw) != sha256.Size) {
		return fmt.Errorf("%.80q is not a digest; accepted are 64 hexadecimal digits, with or without sha256: before them", want)
	}
	if want != "" && want != m.Digest {
		return fmt.Errorf("the module's SHA-256 is %s, not %s: it was changed or truncated on the way", m.Digest, want)
	}
	return nil
}
