package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// Folder returns the folder in a data directory that a node of a cluster has its logs and its number in. A broker without a cluster has
// its logs in the data directory itself, so that neither ever reads those of the other, whatever version it is.
func Folder(dir string) string { return filepath.Join(dir, "cluster") }

// LogsIn returns the folder of a data directory in which the logs are, and whether they are those of a node. The folder itself may be given.
func LogsIn(dir string) (folder string, node bool) {
	for _, folder := range []string{Folder(dir), dir} {
		if _, err := os.Stat(filepath.Join(folder, identityFile)); err == nil {
			return folder, true
		}
	}
	return dir, false
}

// CheckFolder returns an error if a data directory is that of a broker without a cluster, but this one is a node of one, or the reverse.
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

// CheckSource returns an error if a directory is not the data of a broker without a cluster.
func CheckSource(dir string) error {
	_, err := os.Stat(filepath.Join(Folder(dir), identityFile))
	if err == nil {
		return fmt.Errorf("%s is the data folder of a node of a cluster: curfew ctl cluster restore makes a new cluster of that", dir)
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

// checkFinished returns an error if the folder of a node was not made to its end.
func checkFinished(dir string) error {
	_, err := os.Stat(filepath.Join(dir, unfinishedFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("data.dir %s: curfew ctl cluster import, or restore, was interrupted: run it again, or empty the folder", dir)
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
				"name another folder; curfew ctl cluster import --from %s --data FOLDER makes one of a node that brings the data along", dir, dir)
		}
	}
	return err
}
