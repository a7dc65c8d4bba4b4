package repo

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// workflow is what the tests know of a workflow of GitHub's.
type workflow struct {
	On          yaml.Node         `yaml:"on"`
	Permissions map[string]string `yaml:"permissions"`
	Jobs        map[string]struct {
		RunsOn      string            `yaml:"runs-on"`
		Timeout     int               `yaml:"timeout-minutes"`
		Permissions map[string]string `yaml:"permissions"`
		Needs       string            `yaml:"needs"`
		Steps       []struct {
			Uses string            `yaml:"uses"`
			Run  string            `yaml:"run"`
			With map[string]string `yaml:"with"`
		} `yaml:"steps"`
	} `yaml:"jobs"`
}

// Workflows are read by others' machines alone: here they are at least YAML, their actions have versions, they may do no more than they
// must, and the commands are in this repository.
func TestWorkflows(t *testing.T) {
	pinned := regexp.MustCompile(`^[\w-]+/[\w-]+@v\d+\.\d+\.\d+$`)
	var found []string
	for _, name := range files(t) {
		if !under(name, ".github/workflows") {
			continue
		}
		found = append(found, name)
		var w workflow
		if err := yaml.Unmarshal([]byte(read(t, name)), &w); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if w.On.IsZero() || len(w.Jobs) == 0 || w.Permissions["contents"] != "read" || len(w.Permissions) != 1 {
			t.Errorf("%s needs a trigger, jobs, and permissions of its own, contents: read; jobs may have others", name)
		}
		for id, job := range w.Jobs {
			if job.RunsOn == "" || job.Timeout == 0 || len(job.Steps) == 0 {
				t.Errorf("%s: %s needs runs-on, timeout-minutes and steps", name, id)
			}
			if _, there := w.Jobs[job.Needs]; job.Needs != "" && !there {
				t.Errorf("%s: %s needs %s, which is no job", name, id, job.Needs)
			}
			for _, s := range job.Steps {
				if s.Uses != "" && !pinned.MatchString(s.Uses) {
					t.Errorf("%s: %s uses %s: pin its version, as in actions/checkout@v1.2.3", name, id, s.Uses)
				}
				if (s.Uses == "") == (s.Run == "") {
					t.Errorf("%s: %s has a step that needs either uses or run", name, id)
				}
				checkCommands(t, name, s.Run)
			}
		}
	}
	if want := []string{".github/workflows/ci.yml", ".github/workflows/release.yml"}; !slices.Equal(found, want) {
		t.Errorf("workflows: got %v, want %v", found, want)
	}
}

// checkCommands looks for the steps of .ci/run and the targets of make that a script calls.
func checkCommands(t *testing.T, name, script string) {
	t.Helper()
	for _, match := range regexp.MustCompile(`(?m)^\.ci/run(.*)$`).FindAllStringSubmatch(script, -1) {
		for step := range strings.FieldsSeq(match[1]) {
			if !strings.Contains(read(t, ".ci/run"), "\nstep_"+step+"()") {
				t.Errorf("%s: .ci/run has no step %s", name, step)
			}
		}
	}
	for _, match := range regexp.MustCompile(`(?m)^make ([a-z-]+)`).FindAllStringSubmatch(script, -1) {
		if !strings.Contains(read(t, "Makefile"), "\n"+match[1]+":") {
			t.Errorf("%s: the Makefile has no target %s", name, match[1])
		}
	}
}
