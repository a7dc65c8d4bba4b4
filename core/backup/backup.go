// Package backup writes and reads backups of a broker, and restores a data directory from one.
//
// A backup is a tar archive of regular files:
//
//	backup.json           the [Manifest], which lists the files after it
//	00000-00000001.first  files of the data directory, under their names there. Of a log segment, only the
//	00000-00000001.seg    used bytes are in the archive; the rest of the file is zeros. Of a cluster these are a
//	                      node's copies of the shards
//	policies/NAME.policy  expiry policies that were loaded at runtime
//	SHA256SUMS            the digests of all files before it, in the format of sha256sum
//
// The last file shows that the archive is complete.
//
// The archive may be compressed with gzip. Sizes are in bytes.
package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/cluster"
	"github.com/curfewmq/curfew/core/replicas"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// Format is the latest version of the archive format, in which this program writes the
// backup of a cluster. It writes the backup of a broker without a cluster in version alone,
// which earlier programs read, too.
const (
	Format = 2
	alone  = 1
)

// Names of files of the archive that do not come from the data directory.
const (
	manifestName = "backup.json"
	sumsName     = "SHA256SUMS"
)

// PolicyFolder is the folder of the data directory with the files of expiry policies.
const PolicyFolder = "policies"

// Limits for reading archives.
const (
	maxManifest = 32 << 20
	maxFiles    = 256 << 10
	maxPolicy   = 16 << 20
	maxTail     = 1 << 20
)

// Manifest describes a backup.
type Manifest struct {
	Format  int       `json:"format"`
	Version string    `json:"version"` // of the program that made it
	Node    string    `json:"node"`    // the node that it is of; "" = unknown
	Time    time.Time `json:"time"`    // as of which it is
	Shards  int       `json:"shards"`  // how many logs there are, with that of definitions
	// Copy describes the node whose copies of a cluster's shards the logs are; nil = the
	// logs are those of a broker without a cluster.
	Copy  *replicas.Copy `json:"copy,omitempty"`
	Files Files          `json:"files"`
}

// Files are the files of a backup, in archive order.
type Files []File

// UnmarshalJSON implements [json.Unmarshaler]. It refuses excessive numbers of files before
// they take memory: a file takes up to ten times as much memory as its text.
func (l *Files) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	switch begin, err := d.Token(); {
	case err != nil:
		return err
	case begin == nil:
		return nil
	case begin != json.Delim('['):
		return errors.New("files: is not a list")
	}
	*l = nil
	for d.More() {
		if len(*l) == maxFiles {
			return fmt.Errorf("files: there are more than %d, the most that a backup has", maxFiles)
		}
		var f File
		if err := d.Decode(&f); err != nil {
			return err
		}
		*l = append(*l, f)
	}
	return nil
}

// File is a file of the data directory.
type File struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"` // that are in the archive
	Size  int64  `json:"size"`  // of the file; zeros follow Bytes
}

// Bytes returns the size of all files in the archive and in a data directory.
func (m *Manifest) Bytes() (archived, restored int64) {
	for i := range m.Files {
		archived += m.Files[i].Bytes
		restored += m.Files[i].Size
	}
	return archived, restored
}

// policyName matches the names of policy files.
var policyName = regexp.MustCompile(`^` + PolicyFolder + `/[a-z0-9][a-z0-9_-]{0,63}\.policy$`)

// parseManifest parses and checks a manifest from an untrusted source.
func parseManifest(b []byte) (*Manifest, error) {
	var version struct {
		Format  int    `json:"format"`
		Version string `json:"version"`
	}
	if err := json.Unmarshal(b, &version); err != nil {
		return nil, unreadable(err)
	}
	if version.Format > Format {
		return nil, fmt.Errorf("the backup has format %d and was made by version %s: this one reads formats up to %d; restore it with that version or a later one",
			version.Format, shown(version.Version), Format)
	}
	if version.Format < 1 {
		return nil, fmt.Errorf("%s: format %d: formats begin with 1", manifestName, version.Format)
	}
	m := &Manifest{}
	if err := json.Unmarshal(b, m); err != nil {
		return nil, unreadable(err)
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", manifestName, err)
	}
	return m, nil
}

// unreadable returns the error for a manifest that cannot be decoded. The decoder quotes
// numbers and times of any length, so the text is cut.
func unreadable(err error) error {
	const enough = 200
	return fmt.Errorf("%s: %.*s", manifestName, enough, err.Error())
}

func (m *Manifest) check() error {
	seen := make(map[string]bool, len(m.Files))
	shards := map[uint32]bool{}
	for i := range m.Files {
		f := &m.Files[i]
		if err := f.check(); err != nil {
			return err
		}
		if seen[f.Name] {
			return fmt.Errorf("file %q is listed twice", f.Name)
		}
		seen[f.Name] = true
		if i > 0 && f.isPolicy() && !m.Files[i-1].isPolicy() {
			return fmt.Errorf("file %q comes after a log that may need it", f.Name)
		}
		if shard, _, ok := seg.LogFile(f.Name); ok {
			shards[shard] = true
		}
	}
	if !shards[0] {
		return errors.New("there is no log of definitions, shard 0")
	}
	if len(shards) != m.Shards {
		return fmt.Errorf("shards is %d, but there are the files of %d", m.Shards, len(shards))
	}
	return m.checkCopy(shards)
}

func (m *Manifest) checkCopy(shards map[uint32]bool) error {
	switch {
	case m.Copy == nil:
		return nil
	case m.Format == alone:
		return fmt.Errorf("format %d has no backups of clusters", alone)
	}
	if err := cluster.CheckCopy(*m.Copy); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	for shard := range m.Copy.Shards + 1 {
		if !shards[shard] {
			return fmt.Errorf("the cluster has %d shards of virtual hosts, but there is no log of shard %d", m.Copy.Shards, shard)
		}
	}
	return nil
}

func (f *File) check() error {
	_, most, ok := seg.LogFile(f.Name)
	switch {
	case ok:
	case policyName.MatchString(f.Name):
		most = maxPolicy
		if f.Size != f.Bytes {
			return fmt.Errorf("file %q: size %d is not bytes %d", f.Name, f.Size, f.Bytes)
		}
	default:
		return fmt.Errorf("file %s: no file of a data directory has this name", shown(f.Name))
	}
	if f.Bytes < 0 || f.Bytes > f.Size || f.Size > most {
		return fmt.Errorf("file %q: bytes %d of size %d; accepted are 0 <= bytes <= size <= %d", f.Name, f.Bytes, f.Size, most)
	}
	return nil
}

// isPolicy reports whether the file belongs to an expiry policy.
func (f *File) isPolicy() bool { return strings.HasPrefix(f.Name, PolicyFolder+"/") }

// isBeginning reports whether the file records the first segment of a log.
func (f *File) isBeginning() bool { return f.Size == 0 && !f.isPolicy() }

// shown quotes a text of an archive for use in messages. It cuts long texts.
func shown(s string) string {
	const enough = 80
	if len(s) > enough {
		return fmt.Sprintf("%q…", s[:enough])
	}
	return fmt.Sprintf("%q", s)
}

// ShardsOf returns the number of logs that the files belong to.
func ShardsOf(files []File) int {
	var all []uint32
	for i := range files {
		if shard, _, ok := seg.LogFile(files[i].Name); ok {
			all = append(all, shard)
		}
	}
	slices.Sort(all)
	return len(slices.Compact(all))
}

// Online returns the contents of a backup of a running broker: the logs that snapshot returns, and the policies in a folder, ""
// for none. A policy that is there when the snapshot is taken is included, in its state just before or just after.
func Online(m Manifest, policies string, snapshot func() (*seg.Snapshot, error)) (*Contents, error) {
	before, err := openPolicies(policies, nil)
	if err != nil {
		return nil, err
	}
	logs, err := snapshot()
	if err != nil {
		return nil, errors.Join(err, releaseAll(before))
	}
	both, err := openPolicies(policies, before)
	if err != nil {
		return nil, errors.Join(err, logs.Close())
	}
	return Of(m, logs, both), nil
}

// Offline returns the contents of a backup of a data directory that no broker has open. It reads all logs, and refuses
// damaged ones. The directory is locked until the contents are closed.
func Offline(ctx context.Context, m Manifest, dir string) (*Contents, error) {
	if _, ofNode := cluster.LogsIn(dir); ofNode {
		return nil, fmt.Errorf("%s is the data folder of a node of a cluster: back the cluster up while it runs, or copy the folder while the node is stopped; curfew ctl cluster restore makes a new cluster of the copy", dir)
	}
	logs, err := seg.ReadSnapshot(ctx, vfs.Dir(dir))
	if err != nil {
		return nil, err
	}
	if len(logs.Files) == 0 {
		return nil, errors.Join(errors.New("there is no log in "+dir), logs.Close())
	}
	policies, err := openPolicies(filepath.Join(dir, PolicyFolder), nil)
	if err != nil {
		return nil, errors.Join(err, logs.Close())
	}
	return Of(m, logs, policies), nil
}

// openPolicies opens the files in a folder that are not open yet, and adds them to all.
func openPolicies(dir string, all []Source) ([]Source, error) {
	if dir == "" {
		return all, nil
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, errors.Join(err, releaseAll(all))
	}
	have := map[string]bool{}
	for i := range all {
		have[all[i].Name] = true
	}
	for _, e := range entries {
		name := PolicyFolder + "/" + e.Name()
		if have[name] || !policyName.MatchString(name) {
			continue
		}
		s, err := openPolicy(dir, e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // unloaded in the meantime
		}
		if err != nil {
			return nil, errors.Join(err, releaseAll(all))
		}
		all = append(all, s)
	}
	return all, nil
}

// openPolicy opens a policy's file. The opened content does not change, because a change of the policy replaces the file by another one.
func openPolicy(dir, name string) (Source, error) {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return Source{}, err
	}
	info, err := f.Stat()
	if err != nil {
		return Source{}, errors.Join(err, f.Close())
	}
	file := File{Name: PolicyFolder + "/" + name, Bytes: info.Size(), Size: info.Size()}
	return Source{file, f, f.Close}, nil
}

func releaseAll(all []Source) error {
	var errs error
	for i := range all {
		errs = errors.Join(errs, all[i].release())
	}
	return errs
}
