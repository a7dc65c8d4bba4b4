package mgmt

import (
	"context"
	"fmt"
	"testing"

	"github.com/curfewmq/curfew/core/chain"
)

// The page gets all that it shows of policies in one small answer, however many queues there are.
func TestPolicyUse(t *testing.T) {
	r := newRigWith(t, []chain.Named{{Name: "keeper", Plugin: keeper{}}})
	r.do(201, "PUT", "/api/vhosts/other", "")
	for _, vhost := range []string{"%2F", "other"} {
		r.do(201, "PUT", "/api/policies/"+vhost+"/p", `{"pattern":"^q","definition":{"message-ttl":3000,"expires":7000}}`)
	}
	r.do(201, "PUT", "/api/operator-policies/%2F/o", `{"pattern":"1$","definition":{"message-ttl":2000}}`)
	r.do(201, "PUT", "/api/policies/%2F/unused", `{"pattern":"^none","definition":{"expires":1}}`)
	for i := range someApplied + 20 {
		r.do(201, "PUT", fmt.Sprintf("/api/queues/%%2F/q%03d", i), "")
	}
	r.do(201, "PUT", "/api/queues/%2F/without", "")
	r.do(201, "PUT", "/api/queues/other/q1", `{"arguments":{"x-message-ttl":5,"x-dead-letter-exchange":"long"}}`)
	counts := `"policies":[{"vhost":"/","name":"p","operator":false,"queues":120},{"vhost":"/","name":"o","operator":true,"queues":12},{"vhost":"other","name":"p","operator":false,"queues":1}]`
	for query, want := range map[string]string{
		"columns=queues,matching,policies":                      `{"queues":122,"matching":121,` + counts + `}`,
		"policy=p&operator_policy=o&columns=matching,some.name": `{"matching":12,"some":[{"name":"q001"},{"name":"q011"},{"name":"q021"},{"name":"q031"},{"name":"q041"},{"name":"q051"},{"name":"q061"},{"name":"q071"},{"name":"q081"},{"name":"q091"},{"name":"q101"},{"name":"q111"}]}`,
		"policy=unused&columns=matching,some":                   `{"matching":0,"some":[]}`,
		"vhost=other": `{"queues":1,"matching":1,"policies":[{"vhost":"other","name":"p","operator":false,"queues":1}],"some":[{"vhost":"other","name":"q1","policy":"p","operator_policy":null,` +
			`"effective_policy_definition":{"expires":7000,"message-ttl":3000},"expiry_strategy":"keeper","arguments":{"x-message-ttl":5}}]}`,
	} {
		if got := r.do(200, "GET", "/api/policy-use?"+query, ""); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", query, got, want)
		}
	}
	var all struct{ Some []any }
	r.into("/api/policy-use", &all)
	if len(all.Some) != someApplied {
		t.Errorf("got %d queues, want %d", len(all.Some), someApplied)
	}
	r.do(404, "GET", "/api/policy-use?vhost=none", "")
	r.do(400, "GET", "/api/policy-use?page=1", "")
}

// A user sees queues of vhosts that they may enter.
func TestPolicyUseIsOfWhatAUserSees(t *testing.T) {
	r := newRigWith(t, []chain.Named{{Name: "keeper", Plugin: keeper{}}})
	r.do(201, "PUT", "/api/vhosts/own", "")
	r.do(201, "PUT", "/api/users/u", `{"password":"p","tags":"management"}`)
	r.do(201, "PUT", "/api/permissions/own/u", `{"configure":"","write":"","read":""}`)
	for _, vhost := range []string{"%2F", "own"} {
		r.do(201, "PUT", "/api/policies/"+vhost+"/p", `{"pattern":"","definition":{"expires":7000000}}`)
		r.do(201, "PUT", "/api/queues/"+vhost+"/q", "")
	}
	w := r.serve(r.request("u:p", "GET", "/api/policy-use?columns=queues,policies", ""))
	if want := `{"queues":1,"policies":[{"vhost":"own","name":"p","operator":false,"queues":1}]}`; w.Body.String() != want {
		t.Errorf("got %d %s, want %s", w.Code, w.Body, want)
	}
	if w := r.serve(r.request("u:p", "GET", "/api/policy-use?vhost=%2F", "")); w.Code != 401 {
		t.Errorf("another vhost: got %d %s", w.Code, w.Body)
	}
	ctx, leave := context.WithCancel(t.Context())
	leave()
	if w := r.serve(r.request(guest, "GET", "/api/policy-use", "").WithContext(ctx)); w.Code == 200 {
		t.Errorf("somebody who has left: got %s", w.Body)
	}
}
