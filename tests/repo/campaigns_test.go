package repo

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// target is a command of the Makefile that plays campaigns.
type target struct {
	names    *regexp.Regexp
	packages []string
}

// campaignTargets returns the commands of the Makefile that name campaigns.
func campaignTargets(t *testing.T) (all []target) {
	t.Helper()
	command := regexp.MustCompile(`go test .*-run '?(\^TestCampaign[^ ']*)'?((?: \./[\w/]+)+)`)
	for _, match := range command.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		names := regexp.MustCompile(strings.ReplaceAll(match[1], "$$", "$"))
		all = append(all, target{names, strings.Fields(strings.ReplaceAll(match[2], "./", ""))})
	}
	return all
}

// go test ./... skips campaigns, or plays them for seconds. .ci/run campaigns plays the short form of those that the prefix of their names
// tells it of; the long form of each is a target of make.
func TestEachCampaignHasATarget(t *testing.T) {
	targets, found := campaignTargets(t), 0
	for _, s := range sources(t) {
		if !s.isTest() || s.dir() == "core/campaign" {
			continue
		}
		for _, d := range s.ast.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "TestCampaign") {
				continue
			}
			found++
			if !slices.ContainsFunc(targets, func(g target) bool {
				return slices.Contains(g.packages, s.dir()) && g.names.MatchString(f.Name.Name)
			}) {
				t.Errorf("%s: no target of the Makefile plays %s", s.at(f.Pos()), f.Name.Name)
			}
		}
	}
	if found == 0 {
		t.Error("there are no campaigns")
	}
	if !strings.Contains(read(t, ".ci/run"), "-run '^TestCampaign'") {
		t.Error(".ci/run does not play the campaigns")
	}
}
