package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/curfewmq/curfew/core/cluster"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

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
