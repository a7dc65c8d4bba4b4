package hooktest

import (
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"
)

// Section is a plugin's section of the configuration, by key. nil means that it is absent.
type Section map[string]any

// Decode fills the struct that into points to as the broker does: by `koanf` tags, with durations from strings such as "1h", refusing
// unknown keys.
func (s Section) Decode(into any) error {
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("a section is decoded into a pointer to a struct, not into %T", into)
	}
	return s.fill(v.Elem())
}

func (s Section) fill(v reflect.Value) error {
	for _, key := range slices.Sorted(maps.Keys(s)) {
		f, ok := field(v, key)
		if !ok {
			return fmt.Errorf("%s: unknown key", key)
		}
		if err := set(f, s[key]); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

// fillMap makes a struct for each key.
func (s Section) fillMap(m reflect.Value) error {
	m.Set(reflect.MakeMap(m.Type()))
	for _, key := range slices.Sorted(maps.Keys(s)) {
		entry := reflect.New(m.Type().Elem().Elem())
		if err := set(entry.Elem(), s[key]); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		m.SetMapIndex(reflect.ValueOf(key), entry)
	}
	return nil
}

func field(v reflect.Value, key string) (reflect.Value, bool) {
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.IsExported() && f.Tag.Get("koanf") == key {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

func set(f reflect.Value, value any) error {
	given := reflect.ValueOf(value)
	text, isText := value.(string)
	section, isSection := value.(Section)
	unmarshaler, ownText := reflect.TypeAssert[encoding.TextUnmarshaler](f.Addr())
	switch {
	case isSection && f.Kind() == reflect.Struct:
		return section.fill(f)
	case isSection && f.Kind() == reflect.Map && f.Type().Elem().Kind() == reflect.Pointer:
		return section.fillMap(f)
	case isText && ownText:
		return unmarshaler.UnmarshalText([]byte(text))
	case isText && f.Type() == reflect.TypeFor[time.Duration]():
		d, err := time.ParseDuration(text)
		f.SetInt(int64(d))
		return err
	case given.IsValid() && given.Type().AssignableTo(f.Type()):
		f.Set(given)
		return nil
	case given.IsValid() && given.CanInt() && setNumber(f, given.Int()):
		return nil
	}
	return fmt.Errorf("%v is not a %s", value, f.Type())
}

// setNumber reports whether n fits f; durations are written with a unit.
func setNumber(f reflect.Value, n int64) bool {
	switch {
	case f.Type() == reflect.TypeFor[time.Duration]():
		return false
	case f.CanInt() && !f.OverflowInt(n):
		f.SetInt(n)
	case f.CanUint() && n >= 0 && !f.OverflowUint(uint64(n)):
		f.SetUint(uint64(n))
	case f.CanFloat():
		f.SetFloat(float64(n))
	default:
		return false
	}
	return true
}
