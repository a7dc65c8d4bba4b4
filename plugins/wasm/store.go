package wasm

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/curfewmq/curfew/sdk/abi"
)

// StoredPolicy is a policy that was loaded while the broker ran.
type StoredPolicy struct {
	Name    string
	Module  []byte
	Options Options
	// Damage is why the policy cannot be read; only Name and Revision are set then. nil: it can be read.
	Damage error
	// Revision changes with each change, in a store that several hosts follow. 0: the store has no revisions.
	Revision int64
}

// Store saves policies for the next start. Changes are durable when Save and Delete return.
type Store interface {
	// Save saves a policy, and replaces a policy of the same name.
	Save(k StoredPolicy) error
	// Delete removes a policy, if it exists.
	Delete(name string) error
	// LoadAll returns all policies, including damaged ones.
	LoadAll() ([]StoredPolicy, error)
}

// Dir is a [Store] in a folder, which Save creates. A policy is a file NAME.policy:
// a line of JSON with the options and the module's digest, followed by the module.
type Dir string

var _ Store = Dir("")

const suffix = ".policy"

// header is the first line of a file.
type header struct {
	Digest string `json:"sha256"`
	Options
}

func (d Dir) path(name string) string { return filepath.Join(string(d), name+suffix) }

// Save implements [Store].
func (d Dir) Save(k StoredPolicy) error {
	sum := sha256.Sum256(k.Module)
	b, err := json.Marshal(header{hex.EncodeToString(sum[:]), k.Options})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return err
	}
	b = append(append(b, '\n'), k.Module...)
	temporary := d.path(k.Name) + ".new"
	if err := writeDurably(temporary, b); err != nil {
		return err
	}
	if err := os.Rename(temporary, d.path(k.Name)); err != nil {
		return err
	}
	return errors.Join(d.sync(), Dir(filepath.Dir(string(d))).sync()) // the folder itself may be new
}

func writeDurably(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// sync makes the folder's entries durable.
func (d Dir) sync() error {
	f, err := os.Open(string(d))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Delete implements [Store].
func (d Dir) Delete(name string) error {
	err := os.Remove(d.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return d.sync()
}

// LoadAll implements [Store].
func (d Dir) LoadAll() ([]StoredPolicy, error) {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []StoredPolicy
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), suffix)
		if !ok {
			continue
		}
		k, err := d.load(name)
		if err != nil {
			k = StoredPolicy{Name: name, Damage: fmt.Errorf("%s: %w", d.path(name), err)}
		}
		all = append(all, k)
	}
	return all, nil
}

func (d Dir) load(name string) (StoredPolicy, error) {
	info, err := os.Stat(d.path(name))
	if err != nil {
		return StoredPolicy{}, err
	}
	const maxSize = abi.MaxModule + 4*abi.MaxConfig
	if info.Size() > maxSize {
		return StoredPolicy{}, fmt.Errorf("has %d bytes; a policy has up to %d", info.Size(), maxSize)
	}
	b, err := os.ReadFile(d.path(name))
	if err != nil {
		return StoredPolicy{}, err
	}
	line, module, ok := bytes.Cut(b, []byte("\n"))
	var h header
	if err := json.Unmarshal(line, &h); err != nil || !ok {
		return StoredPolicy{}, errors.New("the first line is not that of a policy")
	}
	if sum := sha256.Sum256(module); hex.EncodeToString(sum[:]) != h.Digest {
		return StoredPolicy{}, errors.New("the module is not the one that was kept: its digest differs")
	}
	return StoredPolicy{Name: name, Module: module, Options: h.Options}, nil
}

// cacheDir is a folder with compiled code; "" means none. Without it modules are
// compiled again.
type cacheDir string

// maxCache bounds the code in the folder, in bytes. It is checked when a broker starts and before it compiles another module. It is unknown
// which code in the folder is still used.
const maxCache = 256 << 20

// trim empties a cache that has grown too large.
func (d cacheDir) trim() {
	size := int64(0)
	d.each(func(path string) {
		if info, err := os.Lstat(path); err == nil {
			size += info.Size()
		}
	})
	if size > maxCache {
		d.empty()
	}
}

func (d cacheDir) empty() {
	d.each(func(path string) { _ = os.Remove(path) }) // a file that cannot be removed will be found damaged again
}

func (d cacheDir) each(file func(path string)) {
	if d == "" {
		return
	}
	_ = filepath.WalkDir(string(d), func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			file(path)
		}
		return nil
	})
}

// damaged reports whether the cache caused a compiler error: a loss of power may
// truncate its files.
func (d cacheDir) damaged(err error) bool {
	return d != "" && err != nil && strings.HasPrefix(err.Error(), "compilationcache: ")
}
