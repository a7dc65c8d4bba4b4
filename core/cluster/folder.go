package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/curfewmq/curfew/core/wlog/quorum"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// Folder returns the folder in a data directory that holds the logs and the number of a node. A broker without a cluster has its logs in
// the data directory itself, so that no version of either ever reads the logs of the other.
func Folder(dir string) string { return filepath.Join(dir, "cluster") }

// LogsIn returns the folder of a data directory that holds the logs, and whether they are a node's. The caller may also pass that folder
// itself.
func LogsIn(dir string) (folder string, node bool) {
	for _, folder := range []string{Folder(dir), dir} {
		if _, err := os.Stat(filepath.Join(folder, identityFile)); err == nil {
			return folder, true
		}
	}
	return dir, false
}

// CheckFolder returns an error if a data directory belongs to a broker without a cluster and this one is a node, or the reverse.
func CheckFolder(dir string, clustered bool) error {
	if err := checkFinished(dir); err != nil {
		return err
	}
	if clustered {
		return checkEmpty(dir)
	}
	_, err := os.Stat(filepath.Join(Folder(dir), identityFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("data.dir %s is the data of a node of a cluster: start it with cluster.nodes (--cluster), or name another folder", dir)
}

// CheckSource returns an error unless a directory is the data of a broker without a cluster.
func CheckSource(dir string) error {
	_, err := os.Stat(filepath.Join(Folder(dir), identityFile))
	if err == nil {
		return fmt.Errorf("%s is the data folder of a node of a cluster: curfew ctl cluster restore makes a new cluster from it", dir)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	files, err := vfs.Dir(dir).List()
	if err != nil {
		return err
	}
	for _, f := range files {
		if _, _, ok := seg.LogFile(f.Name); ok {
			return nil
		}
	}
	return fmt.Errorf("%s is not the data folder of a broker: there are no logs in it", dir)
}

// checkFinished returns an error if the making of a node's folder was interrupted.
func checkFinished(dir string) error {
	_, err := os.Stat(filepath.Join(dir, unfinishedFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("data.dir %s: curfew restore, or curfew ctl cluster import or restore, was interrupted: empty the folder, and run it again", dir)
}

// checkEmpty returns an error if a data directory has the logs of a broker without a cluster.
func checkEmpty(dir string) error {
	files, err := vfs.Dir(dir).List()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, f := range files {
		if _, _, ok := seg.LogFile(f.Name); ok {
			return fmt.Errorf("data.dir %s is the data of a broker without a cluster: "+
				"name another folder; curfew ctl cluster import --from %s --data FOLDER makes the folder of a node that brings this data into a cluster", dir, dir)
		}
	}
	return err
}

// Describe returns a function that writes the entries of the logs in a folder as text; body does that for entries of shards. In a node's
// folder the logs hold a replica's records, and the shards' entries are inside these.
func Describe(folder vfs.FS, body seg.Decode) (seg.Decode, error) {
	files, err := folder.List()
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(files, func(f vfs.Stat) bool { return f.Name == identityFile }) {
		return quorum.Describe(body), nil
	}
	return body, nil
}
