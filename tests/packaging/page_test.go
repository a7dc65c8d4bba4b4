//go:build linux

package packaging

import (
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/curfewmq/curfew/tests/tools"
)

// docker is podman on a machine that has no bridges to publish ports through, and whose limits not even root may raise.
const docker = `cat >/usr/local/bin/docker <<'END'
#!/bin/sh
command=$1
shift
[ "$command" != run ] || set -- --network host --cgroups disabled --ulimit nofile=1024:1024 --ulimit nproc=512:512 "$@"
exec podman --root /srv/images --runroot /run/images --tmpdir /run/libpod-test --storage-driver vfs --cgroup-manager cgroupfs --events-backend file "$command" "$@"
END
printf '#!/bin/sh\nexec "$@"\n' >/usr/local/bin/sudo
chmod +x /usr/local/bin/docker /usr/local/bin/sudo`

// The page "Install" is followed from top to bottom, with the files that were made.
func TestPage(t *testing.T) {
	r := made(t)
	tools.Need(t, "podman", "amqp-publish", "curl", "man")
	m := boot(t)
	for _, file := range []string{r.archive(t), r.deb(t), r.image(t), filepath.Join(r.dir, "SHA256SUMS")} {
		m.put(t, file)
	}
	m.run(t, docker)
	page := section{text: contents(t, packages+"/README.md"), release: r, debian: run(t, packages+"/debian/version", r.version)}

	t.Run("checksums and program", func(t *testing.T) { followsProgram(t, m, page) })
	t.Run("service", func(t *testing.T) { followsService(t, m, page) })
	t.Run("container", func(t *testing.T) { followsContainer(t, m, page) })
	t.Run("pod", func(t *testing.T) { followsPod(t, m, page) })
}

// section is a part of the page.
type section struct {
	text    string
	release release
	debian  string // the release's version, as the package has it
}

// of returns what is below a heading.
func (s section) of(t *testing.T, heading string) section {
	t.Helper()
	_, after, found := strings.Cut(s.text, "\n"+heading+"\n")
	if !found {
		t.Fatalf("the page has no %s", heading)
	}
	s.text, _, _ = strings.Cut(after, "\n## ")
	return s
}

// blocks returns a section's blocks of a language, about the release.
func (s section) blocks(t *testing.T, language string) []string {
	t.Helper()
	var found []string
	for _, match := range regexp.MustCompile("(?s)\n```"+language+"\n(.*?)```\n").FindAllStringSubmatch(s.text, -1) {
		found = append(found, strings.NewReplacer(
			"curfew_0.1.0_amd64.deb", "curfew_"+s.debian+"_"+runtime.GOARCH+".deb",
			"0.1.0", s.release.version, "amd64", runtime.GOARCH).Replace(match[1]))
	}
	if len(found) == 0 {
		t.Fatalf("the section has no %s", language)
	}
	return found
}

func followsProgram(t *testing.T, m machine, page section) {
	t.Helper()
	intro := page
	intro.text, _, _ = strings.Cut(page.text, "\n## ")
	said := m.run(t, strings.Join(append(intro.blocks(t, "sh"), page.of(t, "## The program").blocks(t, "sh")...), "\n"))
	if strings.Count(said, ": OK") != 3 || !strings.Contains(said, "curfew "+page.release.version+" (") {
		t.Errorf("got\n%s\nwant three files that are OK, and the version", said)
	}
}

func followsService(t *testing.T, m machine, page section) {
	t.Helper()
	s := page.of(t, "## Debian and Ubuntu")
	said := m.run(t, strings.Join(s.blocks(t, "sh"), "\n"))
	for _, want := range []string{"Active: active (running)", "Product: Curfew " + page.release.version, "msg=ready"} {
		if !strings.Contains(said, want) {
			t.Errorf("the commands do not say %q:\n%s", want, said)
		}
	}
	m.expect(t, "curfew ctl --username anna --password 'a long password' --quiet list_users | cut -f 1", "user\nanna")
	// The drop-in does what it is for: another folder, and a port below 1024.
	m.run(t, "install -d -o curfew /srv/curfew /etc/systemd/system/curfew.service.d\ncat >/etc/systemd/system/curfew.service.d/override.conf <<'END'\n"+s.blocks(t, "ini")[0]+`END
sed -i -e 's#/var/lib/curfew$#/srv/curfew#' -e 's#":5672"#":672"#' /etc/curfew/curfew.yaml
systemctl daemon-reload
systemctl restart curfew
amqp-declare-queue --url=amqp://localhost:672 --queue=low
ls /srv/curfew/LOCK
systemctl stop curfew`)
}

// followsContainer meets a container as its users do: from elsewhere, and again after it was replaced.
func followsContainer(t *testing.T, m machine, page section) {
	t.Helper()
	blocks := page.of(t, "## Containers").blocks(t, "sh")
	m.run(t, blocks[0])
	m.run(t, awaitHealth)
	m.run(t, strings.Join(blocks[1:], "\n"))
	const url = "--url='amqp://anna:a%20long%20password@10.77.0.1'"
	m.run(t, "amqp-declare-queue "+url+" --durable --queue=jobs; amqp-publish "+url+" --persistent --routing-key=jobs --body='survives'")
	if said, err := m.try(t, "amqp-declare-queue --url=amqp://10.77.0.1 --queue=jobs"); err == nil {
		t.Errorf("guest may log in from elsewhere: %s", said)
	}
	m.expect(t, "stat -c %u /proc/$(docker inspect --format '{{.State.Pid}}' curfew); docker inspect --format '{{.State.Health.Status}}' curfew", "10001\nhealthy")
	m.run(t, "docker stop curfew")
	m.expect(t, "docker inspect --format '{{.State.ExitCode}}' curfew; docker rm curfew >/dev/null", "0")
	_, again, _ := strings.Cut(blocks[0], "\n")
	m.run(t, again+awaitHealth)
	m.expect(t, "amqp-get "+url+" --queue=jobs", "survives")
	m.run(t, "docker rm --force curfew")
}

// awaitHealth waits until the image's own health check succeeds.
const awaitHealth = "\nfor n in $(seq 300); do docker healthcheck run curfew >/dev/null && break; sleep 0.2; done; docker healthcheck run curfew"

// manifest is what the test knows of a StatefulSet.
type manifest struct {
	Kind string `yaml:"kind"`
	Spec struct {
		Replicas int `yaml:"replicas"`
		Template struct {
			Spec struct {
				Grace    int `yaml:"terminationGracePeriodSeconds"`
				Security struct {
					User int `yaml:"runAsUser"`
				} `yaml:"securityContext"`
				Containers []struct {
					Env []struct {
						Name  string `yaml:"name"`
						Value string `yaml:"value"`
					} `yaml:"env"`
					ReadinessProbe probe `yaml:"readinessProbe"`
					LivenessProbe  probe `yaml:"livenessProbe"`
					StartupProbe   probe `yaml:"startupProbe"`
					VolumeMounts   []struct {
						MountPath string `yaml:"mountPath"`
					} `yaml:"volumeMounts"`
				} `yaml:"containers"`
			} `yaml:"spec"`
		} `yaml:"template"`
	} `yaml:"spec"`
}

type probe struct {
	Get struct {
		Path string `yaml:"path"`
	} `yaml:"httpGet"`
}

// followsPod runs the image as the StatefulSet says: with its variables, as its user, without capabilities, with a root that cannot be
// written to. Its probes get answers.
func followsPod(t *testing.T, m machine, page section) {
	t.Helper()
	block := page.of(t, "## Kubernetes").blocks(t, "yaml")[0]
	var set manifest
	must(t, yaml.Unmarshal([]byte(block), &set))
	pod := set.Spec.Template.Spec
	if set.Kind != "StatefulSet" || set.Spec.Replicas != 1 || pod.Grace < 30 || pod.Security.User != 10001 || len(pod.Containers) != 1 {
		t.Fatalf("it is no StatefulSet of one that has time to stop: %+v", set)
	}
	c := pod.Containers[0]
	command := []string{
		"docker run --detach --name pod --read-only --cap-drop ALL --security-opt no-new-privileges --user 10001:10001",
		"--volume pod:" + c.VolumeMounts[0].MountPath, "--env CURFEW_AUTH__USERS__ANNA__PASSWORD=secret",
	}
	for _, v := range c.Env {
		if v.Value != "" {
			command = append(command, "--env "+v.Name+"="+v.Value)
		}
	}
	m.run(t, strings.Join(append(command, "localhost/curfew:"+page.release.version), " "))
	for _, p := range []probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
		m.run(t, "curl --silent --show-error --fail --retry 60 --retry-delay 1 --retry-all-errors http://10.77.0.1:15692"+p.Get.Path)
	}
	m.expect(t, "curfew ctl --url http://10.77.0.1:15672 --username anna --password secret --quiet list_vhosts", "name\n/")
	m.run(t, "docker rm --force pod")
}
