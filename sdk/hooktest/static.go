package hooktest

import (
	"errors"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/sdk/hook"
)

func checkConfig(t reporter, f hook.Factory) {
	if !regexp.MustCompile(`^[a-z][a-z0-9-]*$`).MatchString(f.Name) {
		t.Errorf("name %q: want lower-case letters, digits and dashes", f.Name)
	}
	p, config, err := f.New(Section(nil).Decode)
	if err != nil || p == nil {
		t.Fatalf("defaults: got plugin %v, error %v", p, err)
	}
	if k := reflect.ValueOf(config).Kind(); k != reflect.Struct {
		t.Fatalf("New returned a %T as the configuration, want the struct", config)
	}
	checkTags(t, reflect.TypeOf(config))
	if _, _, err := f.New(Section{"no-such-key": 1}.Decode); err == nil || !strings.Contains(err.Error(), "no-such-key") {
		t.Errorf("unknown key: got error %v, want one that names it", err)
	}
	refused := errors.New("refused by the decoder")
	if _, _, err := f.New(func(any) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("New hides the decoder's error: got %v", err)
	}
}

func checkTags(t reporter, config reflect.Type) {
	t.Helper()
	for f := range config.Fields() {
		if f.Tag.Get("koanf") == "-" {
			continue
		}
		if f.IsExported() && !regexp.MustCompile(`^[a-z][a-z0-9-]*$`).MatchString(f.Tag.Get("koanf")) {
			t.Errorf("%s.%s: tag `koanf:%q`, want lower-case letters, digits and dashes", config, f.Name, f.Tag.Get("koanf"))
		}
		typ := f.Type
		if typ.Kind() == reflect.Map && typ.Elem().Kind() == reflect.Pointer {
			typ = typ.Elem().Elem() // of the entries
		}
		if typ.Kind() == reflect.Struct {
			checkTags(t, typ)
		}
	}
}

// anything has a value of every type that an argument can have.
var anything = []any{
	nil, true, false, int8(-1), uint8(255), int16(-5), uint16(7), int32(0), int32(1), uint32(1 << 31),
	int64(0), int64(1), int64(-1), int64(math.MaxInt64), int64(math.MinInt64), float32(1.5), math.NaN(), math.Inf(1),
	"", "no such value", "0", strings.Repeat("x", 1<<16), "\xff\x00", []byte(nil), []byte("abc"),
	[]any{int32(1)},
	map[string]any{"a": 1},
	struct{}{},
}

func checkArguments(t reporter, f hook.Factory) {
	p, _, err := f.New(Section(nil).Decode)
	if err != nil {
		t.Fatalf("defaults: %v", err)
	}
	seen := make(map[string]bool)
	for _, a := range p.Arguments() {
		if !strings.HasPrefix(a.Name, "x-") || seen[a.Name] {
			t.Errorf("argument %q: want names that begin with x-, each once", a.Name)
		}
		seen[a.Name] = true
		for _, kind := range a.QueueTypes {
			if !slices.Contains([]string{"classic", "quorum"}, kind) {
				t.Errorf("%s: there is no queue type %q", a.Name, kind)
			}
		}
		if a.QueueTypes != nil && len(a.QueueTypes) == 0 {
			t.Errorf("%s: QueueTypes is empty, so that no queue has the argument; nil means both types", a.Name)
		}
		if a.Check == nil {
			t.Errorf("%s: no Check", a.Name)
			continue
		}
		for _, v := range anything {
			checkArgument(t, a, v)
		}
	}
}

func checkArgument(t reporter, a hook.Argument, v any) {
	t.Helper()
	var first error
	for i, all := range []hook.Args{nil, {{Name: a.Name, Value: v}}, {{Name: a.Name, Value: v}}} {
		err, failed := refusalOf(a, v, all)
		if failed != nil {
			t.Errorf("%s = %s: the check %v", a.Name, brief(v), failed)
			return
		}
		if err == nil {
			continue
		}
		_, isArg := errors.AsType[*hook.ArgError](err)
		_, isType := errors.AsType[*hook.ArgTypeError](err)
		if !isArg && !isType {
			t.Errorf("%s = %T: got the error %v (%T), want a hook.ArgError or hook.ArgTypeError", a.Name, v, err, err)
		}
		if first != nil && i == 2 && err.Error() != first.Error() {
			t.Errorf("%s = %T: refused once with %v, then with %v", a.Name, v, first, err)
		}
		first = err
	}
}

// refusalOf runs a check, and reads its error as the broker does. Reading an error that is a nil pointer panics.
func refusalOf(a hook.Argument, v any, all hook.Args) (err, failed error) {
	failed = contained(func() error {
		if err = a.Check(v, all); err != nil {
			_ = err.Error()
		}
		return nil
	})
	return err, failed
}
