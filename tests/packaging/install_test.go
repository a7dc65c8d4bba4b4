//go:build linux

package packaging

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/tests/tools"
)

// The package's life on a machine: it is installed, serves, is upgraded, removed and purged, by dpkg and systemd themselves.
func TestService(t *testing.T) {
	r := made(t)
	tools.Need(t, "amqp-publish", "curl")
	m := boot(t)
	m.put(t, r.deb(t))
	deb := filepath.Base(r.deb(t))

	t.Run("a machine that starts no services", func(t *testing.T) { policyForbids(t, m, deb) })
	t.Run("installed", func(t *testing.T) { installs(t, m, deb) })
	t.Run("expiry policies", func(t *testing.T) { loadsPolicy(t, m) })
	t.Run("reloaded", func(t *testing.T) { reloads(t, m) })
	t.Run("upgraded", func(t *testing.T) { upgrades(t, m, deb) })
	t.Run("killed", func(t *testing.T) { comesBack(t, m) })
	t.Run("a port that is taken", func(t *testing.T) { namesPort(t, m) })
	t.Run("a wrong configuration", func(t *testing.T) { namesKey(t, m) })
	t.Run("removed", func(t *testing.T) { removes(t, m) })
	t.Run("a disk of its own", func(t *testing.T) { emptiesDisk(t, m, deb) })
}

// policyForbids installs the package where policy-rc.d forbids it to start services, as in a container that an image is made in.
func policyForbids(t *testing.T, m machine, deb string) {
	t.Helper()
	m.run(t, `printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d; chmod +x /usr/sbin/policy-rc.d; dpkg --install `+deb)
	m.expect(t, "systemctl is-active curfew || true", "inactive")
	m.expect(t, "systemctl is-enabled curfew", "enabled")
	m.run(t, "rm /usr/sbin/policy-rc.d; dpkg --purge curfew")
}

// installs looks at a service that was just installed: it is ready, has its own user, and its files belong to that.
func installs(t *testing.T, m machine, deb string) {
	t.Helper()
	m.run(t, "dpkg --install "+deb)
	m.expect(t, "systemctl is-active curfew", "active")
	m.expect(t, `ps -o user= -p "$(systemctl show --property MainPID --value curfew)"`, "curfew")
	m.expect(t, "stat -c '%U %G %a' /etc/curfew/curfew.yaml /var/lib/curfew", "root curfew 640\ncurfew curfew 750")
	m.expect(t, `grep -E '^(Seccomp|NoNewPrivs|CapBnd):' "/proc/$(systemctl show --property MainPID --value curfew)/status" | tr '\t' ' '`,
		"CapBnd: 0000000000000000\nNoNewPrivs: 1\nSeccomp: 2")
	// Being ready means that it answers: nothing waits for it.
	m.expect(t, `amqp-declare-queue --url=amqp://localhost --durable --queue=jobs && amqp-publish --url=amqp://localhost --persistent --routing-key=jobs --body='survives'`, "jobs")
}

// loadsPolicy has the service compile a policy to machine code, which its sandbox must allow.
func loadsPolicy(t *testing.T, m machine) {
	t.Helper()
	m.put(t, filepath.Join(root, "wasm-examples/size-ttl/size.wasm"))
	m.run(t, "curfew policy load size size.wasm")
	if said := m.run(t, "curfew policy list"); !strings.Contains(said, "size") {
		t.Errorf("the policy is not listed:\n%s", said)
	}
}

// reloads changes the configuration of the running service.
func reloads(t *testing.T, m machine) {
	t.Helper()
	m.run(t, "printf '\\nlog:\\n  level: debug\\n' >>/etc/curfew/curfew.yaml; systemctl reload curfew")
	m.awaitJournal(t, "configuration reloaded.*DEBUG")
}

// upgrades installs a later version, over a configuration that the administrator has changed.
func upgrades(t *testing.T, m machine, deb string) {
	t.Helper()
	before := m.run(t, "systemctl show --property MainPID --value curfew")
	m.run(t, `dpkg-deb -R `+deb+` later
sed -i 's/^Version: .*/&+later/' later/DEBIAN/control
echo '# what is new' >>later/etc/curfew/curfew.yaml
dpkg-deb --root-owner-group -Znone --build later later.deb
dpkg --force-confold --install later.deb`)
	m.expect(t, "systemctl is-active curfew", "active")
	if after := m.run(t, "systemctl show --property MainPID --value curfew"); after == before {
		t.Error("the old program still runs after the upgrade")
	}
	m.expect(t, "tail -n 1 /etc/curfew/curfew.yaml; stat -c '%U %G %a' /etc/curfew/curfew.yaml", "  level: debug\nroot curfew 640")
	m.expect(t, "amqp-get --url=amqp://localhost --queue=jobs", "survives")
}

// comesBack kills the broker.
func comesBack(t *testing.T, m machine) {
	t.Helper()
	m.run(t, "systemctl set-property --runtime curfew CPUWeight=100; systemctl kill --signal KILL curfew")
	m.awaitJournal(t, "(?s)code=killed, status=9/KILL.*Started")
}

// namesPort starts the service while another broker has its port: it fails, and the journal has the broker's own words.
func namesPort(t *testing.T, m machine) {
	t.Helper()
	m.run(t, `systemctl stop curfew
systemd-run --quiet --unit other --property Type=notify --property DynamicUser=yes --property StateDirectory=other \
  curfew serve --data /var/lib/other --management off
! systemctl start curfew`)
	m.awaitJournal(t, "address already in use")
	m.run(t, "systemctl stop other curfew; systemctl reset-failed curfew; systemctl start curfew")
	m.expect(t, "systemctl is-active curfew", "active")
}

// namesKey starts the service with a key that there is not. Trying that again would not help.
func namesKey(t *testing.T, m machine) {
	t.Helper()
	m.run(t, `cp -p /etc/curfew/curfew.yaml kept; echo 'lisen: {}' >>/etc/curfew/curfew.yaml; systemctl stop curfew; ! systemctl start curfew`)
	m.awaitJournal(t, "lisen")
	m.expect(t, "systemctl is-failed curfew; systemctl show --property NRestarts --value curfew", "failed\n0")
	m.run(t, "cp -p kept /etc/curfew/curfew.yaml; systemctl start curfew")
}

// removes removes the package, which keeps what it has, and then purges it, which does not.
func removes(t *testing.T, m machine) {
	t.Helper()
	m.run(t, "dpkg --remove curfew")
	m.expect(t, "systemctl is-active curfew || true; ls -d /etc/curfew/curfew.yaml; ls /var/lib/curfew | grep -c seg", "inactive\n/etc/curfew/curfew.yaml\n2")
	m.run(t, "dpkg --purge curfew")
	m.expect(t, "ls -d /var/lib/curfew /etc/curfew /lib/systemd/system/curfew.service 2>/dev/null || true; systemctl list-unit-files --no-legend 'curfew*' || true; id -un curfew", "curfew")
}

// emptiesDisk purges a package whose data is on a disk of its own, which cannot be removed.
func emptiesDisk(t *testing.T, m machine, deb string) {
	t.Helper()
	m.run(t, "mkdir /var/lib/curfew; mount -t tmpfs disk /var/lib/curfew; dpkg --install "+deb)
	m.expect(t, "systemctl is-active curfew; stat -c '%U %a' /var/lib/curfew", "active\ncurfew 750")
	m.run(t, "dpkg --purge curfew")
	m.expect(t, "ls -A /var/lib/curfew; mountpoint /var/lib/curfew; umount /var/lib/curfew; rmdir /var/lib/curfew", "/var/lib/curfew is a mountpoint")
}
