package packaging

import (
	"bufio"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/cmd/curfew/app"
	"github.com/curfewmq/curfew/core/config"
	"github.com/curfewmq/curfew/tests/tools"
)

// The configuration of the package is a correct one, and so is what it suggests in comments.
func TestPackagedConfiguration(t *testing.T) {
	packaged := contents(t, packages+"/curfew.yaml")
	c := loads(t, packaged)
	if c.Data.Dir != "/var/lib/curfew" {
		t.Errorf("data.dir: got %s, want the service's folder, /var/lib/curfew", c.Data.Dir)
	}
	suggestion := regexp.MustCompile(`(?m)^( *)# ((?: *)[a-z-]+:(?: [^#]*)?(?: #.*)?)$`)
	suggested := suggestion.ReplaceAllString(packaged, "$1$2")
	if suggested == packaged {
		t.Error("no suggestion was found in the comments")
	}
	for _, key := range []string{"metrics", "level", "cert", "key"} {
		if !regexp.MustCompile(`(?m)^ +` + key + `:`).MatchString(suggested) {
			t.Errorf("%s is not suggested", key)
		}
	}
	loads(t, suggested)
}

func loads(t *testing.T, yaml string) *config.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "curfew.yaml")
	must(t, os.WriteFile(file, []byte(yaml), 0o600))
	c, err := config.Load(config.Input{File: file, Plugins: app.Builtin()})
	if err != nil {
		t.Fatalf("%v\n%s", err, yaml)
	}
	return c
}

// unit is a unit's settings, by "Section.Setting".
func unit(t *testing.T) map[string]string {
	t.Helper()
	settings, section := map[string]string{}, ""
	lines := bufio.NewScanner(strings.NewReader(contents(t, packages+"/curfew.service")))
	for lines.Scan() {
		line := lines.Text()
		key, value, found := strings.Cut(line, "=")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
		case !found:
			t.Fatalf("the unit has a line that is no setting: %s", line)
		default:
			settings[section+"."+key] += value + "\n"
		}
	}
	return settings
}

func TestUnit(t *testing.T) {
	settings := unit(t)
	for key, want := range map[string]string{
		"Service.Type": "notify", "Service.NotifyAccess": "main", "Service.User": "curfew", "Service.StateDirectory": "curfew",
		"Service.ExecReload": "/bin/kill -HUP $MAINPID", "Service.Restart": "on-failure", "Service.TimeoutStartSec": "infinity",
		"Service.ProtectSystem": "strict", "Service.NoNewPrivileges": "yes", "Service.PrivateTmp": "yes",
		"Service.MemoryDenyWriteExecute": "no",
	} {
		if got := strings.TrimSpace(settings[key]); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	// The broker gives connections so long to close, and its spans and metrics.
	const drain, spans = 20 * time.Second, 2 * time.Second
	patience, err := strconv.Atoi(strings.TrimSpace(settings["Service.TimeoutStopSec"]))
	if err != nil || time.Duration(patience)*time.Second < 2*(drain+spans) {
		t.Errorf("TimeoutStopSec is %q: a broker that closes its connections would be killed", settings["Service.TimeoutStopSec"])
	}
}

// systemd knows every setting, and what the service may do is little.
func TestUnitIsTight(t *testing.T) {
	tools.Need(t, "systemd-analyze")
	run(t, "systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=20", packages+"/curfew.service")
	dir := t.TempDir()
	file := filepath.Join(dir, "curfew.service")
	runnable := strings.ReplaceAll(contents(t, packages+"/curfew.service"), "/usr/bin/curfew", "/bin/true")
	must(t, os.WriteFile(file, []byte(runnable), 0o600))
	if said := run(t, "systemd-analyze", "verify", "--man=no", file); strings.Contains(said, "curfew.service") {
		t.Errorf("systemd says of the unit: %s", said)
	}
}

// Debian's own checks find no error.
func TestLintian(t *testing.T) {
	r := made(t)
	tools.Need(t, "lintian")
	if said := run(t, "lintian", "--allow-root", "--fail-on", "error,warning", r.deb(t)); said != "" {
		t.Errorf("lintian says:\n%s", said)
	}
}

// What is installed belongs to root, and the administrator's file survives upgrades.
func TestDebContents(t *testing.T) {
	r := made(t)
	tools.Need(t, "dpkg-deb")
	if got := run(t, "dpkg-deb", "--field", r.deb(t), "Version"); got != run(t, packages+"/debian/version", r.version) {
		t.Errorf("the package has version %s, the release %s", got, r.version)
	}
	listing := run(t, "dpkg-deb", "--contents", r.deb(t))
	for line := range strings.SplitSeq(listing, "\n") {
		if !strings.Contains(line, " root/root ") {
			t.Errorf("not root's: %s", line)
		}
	}
	for _, want := range []string{"-rwxr-xr-x .* ./usr/bin/curfew", "-rw-r--r-- .* ./etc/curfew/curfew.yaml", "-rw-r--r-- .* ./lib/systemd/system/curfew.service"} {
		if !regexp.MustCompile(`(?m)^` + want + `$`).MatchString(listing) {
			t.Errorf("there is no %s in\n%s", want, listing)
		}
	}
	dir := t.TempDir()
	run(t, "dpkg-deb", "--extract", r.deb(t), dir)
	tools.Need(t, "man")
	manual := run(t, "man", "--local-file", filepath.Join(dir, "usr/share/man/man1/curfew.1.gz"))
	for _, want := range []string{"CURFEW SERVE", "--config FILE", "CURFEW CTL", "SEE ALSO"} {
		if !strings.Contains(manual, want) {
			t.Errorf("the manual page lacks %q:\n%s", want, manual)
		}
	}
	if got := run(t, "dpkg-deb", "--info", r.deb(t), "conffiles"); got != "/etc/curfew/curfew.yaml" {
		t.Errorf("configuration files: got %q", got)
	}
}
