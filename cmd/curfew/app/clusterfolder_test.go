package app

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A call that cannot work names the missing flag, or the problem with a folder.
func TestFolderCommands(t *testing.T) {
	empty, data := t.TempDir(), filepath.Join(t.TempDir(), "data")
	for _, tt := range []struct {
		args   string
		status int
		want   string
	}{
		{"import --help", exitOK, "the cluster's number of shards (cluster.shards), 1 to 255 (default " + strconv.Itoa(defaultClusterShards) + ")"},
		{"restore --help", exitOK, "curfew ctl cluster restore [FLAGS]"},
		{"import --data x", exitUsage, "--from is missing"},
		{"restore --from x", exitUsage, "--data is missing"},
		{"import --from x --data y z", exitUsage, `unexpected argument "z"`},
		{"import --from " + empty + " --data " + data, exitFailure, empty + " is not the data folder of a broker: there are no logs in it"},
		{"import --from " + filepath.Join(empty, "no") + " --data " + data, exitFailure, "no such file or directory"},
		{"restore --from " + empty + " --data " + data, exitFailure, empty + " is not a copy of a node's data folder"},
	} {
		code, stdout, stderr := invoke(append([]string{"ctl", "cluster"}, strings.Fields(tt.args)...)...)
		if code != tt.status || !strings.Contains(stdout+stderr, tt.want) {
			t.Errorf("%s: exit status %d, %s%s", tt.args, code, stdout, stderr)
		}
	}
	code, stdout, stderr := invoke("ctl", "--from", empty, "cluster", "import", "--data", data)
	if want := empty + " is not the data folder of a broker"; code != exitFailure || !strings.Contains(stderr, want) {
		t.Errorf("a flag before the action: exit status %d, %s%s", code, stdout, stderr)
	}
	code, stdout, _ = invoke("config")
	if code != exitOK || !strings.Contains(stdout, "shards: "+strconv.Itoa(defaultClusterShards)) {
		t.Errorf("cluster.shards has another default:\n%s", stdout)
	}
}
