package mgmt

import (
	"testing"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/sdk/hook"
)

// nightshift is a plugin that is not ours, with keys of policies.
type nightshift struct{ hook.NoHooks }

func (nightshift) Arguments() []hook.Argument {
	return []hook.Argument{
		{Name: "x-night-shift", Policy: &hook.PolicyKey{
			Check: hook.PolicyInt(0, 23, "night shift, expected 0 to 23"), Operator: true, Merge: hook.TakeHigher, Argument: hook.TakeLower,
		}},
		{Name: "x-night-zone", Policy: &hook.PolicyKey{Check: func(v any) error {
			if v == "broken" {
				panic("no such zone")
			}
			return nil
		}}},
	}
}

// A plugin's keys are set, listed, merged, imported and exported as RabbitMQ's own are.
func TestKeysOfPlugins(t *testing.T) {
	r := newRigWith(t, []chain.Named{{Name: "nightshift", Plugin: nightshift{}}})
	policy, operator := "/api/policies/%2F/p", "/api/operator-policies/%2F/o"
	refused := func(lines string) string {
		return `{"error":"bad_request","reason":"Validation failed\n\n` + lines + `\n"}`
	}
	r.do(201, "PUT", "/api/queues/%2F/q", `{"durable":true}`)
	r.do(201, "PUT", policy, `{"pattern":"^q","definition":{"night-shift":5,"night-zone":["a"]}}`)
	r.do(201, "PUT", operator, `{"pattern":"^q","definition":{"night-shift":7}}`)
	effective := func() {
		t.Helper()
		wantMembers(t, r.one("/api/queues/%2F"), map[string]string{
			"policy": `"p"`, "operator_policy": `"o"`, "effective_policy_definition": `{"night-shift":7,"night-zone":["a"]}`,
		})
	}
	effective()
	for _, tt := range []struct{ path, definition, want string }{
		{policy, `{"night-shift":24}`, refused("24 is not a valid night shift, expected 0 to 23")},
		{policy, `{"night-zone":"broken"}`, refused(`<<\"broken\">> is not a valid value of night-zone: the plugin nightshift failed on it`)},
		{operator, `{"night-zone":"a"}`, refused(`[{<<\"night-zone\">>,<<\"a\">>}] are not recognised policy settings`)},
		{policy, `{"day-shift":5}`, refused(`[{<<\"day-shift\">>,5}] are not recognised policy settings`)},
	} {
		if got := r.do(400, "PUT", tt.path, `{"pattern":"","definition":`+tt.definition+`}`); got != tt.want {
			t.Errorf("%s: got\n%s\nwant\n%s", tt.definition, got, tt.want)
		}
	}
	exported := r.do(200, "GET", "/api/definitions", "")
	r.do(204, "DELETE", policy, "")
	r.do(204, "DELETE", operator, "")
	wantMembers(t, r.one("/api/queues/%2F"), map[string]string{"effective_policy_definition": `{}`})
	r.do(204, "POST", "/api/definitions", exported)
	effective()

	// A broker without the plugin refuses the file, as RabbitMQ does, and names policy and key.
	without := newRig(t)
	got := without.do(400, "POST", "/api/definitions", `{"policies":[{"vhost":"/","name":"p","pattern":"","definition":{"max-length":1,"night-zone":"a"}}]}`)
	want := `{"error":"bad_request","reason":"Validation failed\n\n[{<<\"night-zone\">>,<<\"a\">>}] are not recognised policy settings\n (//p)"}`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := without.do(200, "GET", "/api/policies", ""); got != "[]" {
		t.Errorf("something of the file is there: %s", got)
	}
}
