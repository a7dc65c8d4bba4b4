package mgmt

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/curfewmq/curfew/core/mgmt/definitions"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/policies"
)

// carrier is policies that can be carried from one broker to another.
type carrier struct {
	shelf
	all []definitions.Carried
}

func (c *carrier) Carried() []definitions.Carried { return slices.Clone(c.all) }

func (c *carrier) Canonical(m Module) Module {
	if m.Fuel == "1000000" {
		m.Fuel = "default"
	}
	return m
}

func (c *carrier) Load(m Module) (bool, []string, error) {
	if string(m.Module) == "bad" {
		return false, nil, &ModuleError{Text: `policy "` + m.Name + `": it is bad`}
	}
	c.calls = append(c.calls, fmt.Sprintf("load %s %s %s %s %s %s", m.Name, m.Module, m.Config, m.Grants, m.Fuel, m.OnError))
	c.all = append(slices.DeleteFunc(c.all, func(o definitions.Carried) bool { return o.Name == m.Name }), definitions.Carried{Module: m})
	return true, c.warnings, nil
}

func (c *carrier) Unload(name string, force bool) error {
	c.note("unload", name, force)
	c.all = slices.DeleteFunc(c.all, func(o definitions.Carried) bool { return o.Name == name })
	return nil
}

func newCarrier(t *testing.T) (*rig, *carrier) {
	t.Helper()
	c := &carrier{}
	return newRig(t, func(o *Options) { o.Modules = c }), c
}

// module is a policy in definitions, with these other members.
func moduleOf(name, code, more string) string {
	return fmt.Sprintf(`{"name":%q,"module":%q%s}`, name, base64.StdEncoding.EncodeToString([]byte(code)), more)
}

func withPolicies(modules string, others ...string) string {
	return `{"wasm_policies":[` + modules + `]` + strings.Join(append([]string{""}, others...), ",") + `}`
}

func TestDefinitionsCarryModules(t *testing.T) {
	r, c := newCarrier(t)
	if all := r.do(200, "GET", "/api/definitions", ""); strings.Contains(all, "wasm_policies") {
		t.Errorf("without policies there is the section: %s", all)
	}
	r.do(204, "POST", "/api/definitions", withPolicies(moduleOf("a", "code", `,"config":{"b":[1]},"grants":["body"],"fuel":"large","on_error":"keep"`)+","+moduleOf("b", "more", "")))
	if want := []string{`load a code {"b":[1]} [body] large keep`, "load b more  [] default builtin"}; !slices.Equal(c.calls, want) {
		t.Errorf("called %q, want %q", c.calls, want)
	}
	all := r.do(200, "GET", "/api/definitions", "")
	var file struct {
		Policies []json.RawMessage `json:"wasm_policies"`
	}
	must(t, json.Unmarshal([]byte(all), &file))
	const want = `{"name":"a","digest":"5694d08a2e53ffcae0c3103e5ad6f6076abd960eb1f8a56577040bc1028f702b","fuel":"large","on_error":"keep","grants":["body"],"config":{"b":[1]},"module":"Y29kZQ=="}`
	if len(file.Policies) != 2 || string(file.Policies[0]) != want {
		t.Errorf("exported %s\nwant %s", file.Policies, want)
	}
	if bare := r.do(200, "GET", "/api/definitions?modules=false", ""); strings.Contains(bare, "wasm_policies") {
		t.Errorf("left out, they are there: %s", bare)
	}
	if bare := r.do(200, "GET", "/api/definitions/%2F", ""); strings.Contains(bare, "wasm_policies") {
		t.Errorf("a vhost that names none has them: %s", bare)
	}
	r.do(400, "GET", "/api/definitions?modules=no", "")
	c.calls = nil
	r.do(204, "POST", "/api/definitions", all)
	if c.calls != nil {
		t.Errorf("what is there already was loaded again: %q", c.calls)
	}
	r.do(204, "POST", "/api/definitions", withPolicies(moduleOf("a", "code 2", "")))
	if want := []string{"load a code 2  [] default builtin"}; !slices.Equal(c.calls, want) {
		t.Errorf("another version: called %q, want %q", c.calls, want)
	}
}

// An import that is refused leaves the policies as they were, too.
func TestRefusedImportsLoadNothing(t *testing.T) {
	for _, tt := range []struct{ name, file, want, calls string }{
		{"not a list", `{"wasm_policies":{}}`, "wasm_policies: line 1, column 18: is not a list", ""},
		{"no name", `{"wasm_policies":[{"module":""}]}`, "{key_missing,name}", ""},
		{"not base64", `{"wasm_policies":[{"name":"a","module":"?"}]}`, "expiry policy 'a': module is not base64", ""},
		{"another digest", withPolicies(moduleOf("a", "code", `,"digest":"00"`)), "expiry policy 'a': digest: the module's is 5694d08a", ""},
		{"twice", withPolicies(moduleOf("a", "x", "") + "," + moduleOf("a", "y", "")), "expiry policy 'a': is there twice", ""},
		{"a module that is refused", withPolicies(moduleOf("a", "x", "") + "," + moduleOf("b", "bad", "")), `policy \"b\": it is bad`, "load a x  [] default builtin, unload a!"},
		{"a definition that is refused", withPolicies(moduleOf("a", "x", ""), `"queues":[{"name":"","vhost":"/"}]`), "the name of a queue is empty", "load a x  [] default builtin, unload a!"},
		{"another version beside one", withPolicies(moduleOf("old", "x", ""), `"queues":[{"name":"","vhost":"/"}]`), "the name of a queue is empty", ""},
		{
			"missing ones", withPolicies(moduleOf("a", "x", ""),
				`"queues":[{"name":"q","vhost":"/","arguments":{"x-expiry-strategy":"wasm/b"}},{"name":"r","vhost":"/","arguments":{"x-expiry-strategy":"wasm/a"}}]`,
				`"policies":[{"name":"p","vhost":"/","pattern":"","definition":{"expiry-strategy":"wasm/c"}}]`,
				`"parameters":[{"name":"o","vhost":"/","component":"operator_policy","value":{"pattern":"","definition":{"expiry-strategy":"wasm/d"}}}]`),
			"missing expiry policies: wasm/b, which queue 'q' in vhost '/' names, wasm/c, which policy 'p' in vhost '/' names, wasm/d, which parameter 'o' in vhost '/' names; load them first", "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, c := newCarrier(t)
			c.all = []definitions.Carried{{Module: Module{Name: "old", Module: []byte("code"), Digest: "1"}}}
			if body := r.do(400, "POST", "/api/definitions", tt.file); !strings.Contains(body, tt.want) {
				t.Errorf("got %s, want %q", body, tt.want)
			}
			if got := strings.Join(c.calls, ", "); got != tt.calls {
				t.Errorf("called %q, want %q", got, tt.calls)
			}
		})
	}
}

// Only loading a version shows whether it is accepted. If the second of two is not, the first goes back to its old version, and new
// policies go away: the answer says that the file is refused.
func TestARefusedVersionLeavesAllPoliciesAsTheyWere(t *testing.T) {
	r, c := newCarrier(t)
	r.do(204, "POST", "/api/definitions", withPolicies(moduleOf("a", "code", `,"config":{"b":1},"grants":["body"]`)+","+moduleOf("b", "code", "")))
	c.calls = nil
	body := r.do(400, "POST", "/api/definitions", withPolicies(moduleOf("c", "x", "")+","+moduleOf("a", "x", "")+","+moduleOf("b", "bad", ""), `"vhosts":[{"name":"v"}]`))
	if !strings.Contains(body, "it is bad") {
		t.Errorf("got %s", body)
	}
	if vhosts := r.do(200, "GET", "/api/vhosts", ""); strings.Contains(vhosts, `"name":"v"`) {
		t.Errorf("other definitions were applied: %s", vhosts)
	}
	want := []string{"load c x  [] default builtin", "load a x  [] default builtin", `load a code {"b":1} [body] default builtin`, "unload c!"}
	if !slices.Equal(c.calls, want) {
		t.Errorf("called %q, want %q", c.calls, want)
	}
}

// The file of a configured policy may be another one by now, or gone. The policy is in force nevertheless: an import finds it.
func TestImportsKnowPoliciesWhoseModuleIsNotToBeHad(t *testing.T) {
	r, c := newCarrier(t)
	c.all = []definitions.Carried{{Fixed: true, Module: Module{Name: "a", Digest: "1"}}}
	r.do(204, "POST", "/api/definitions", `{"queues":[{"name":"q","vhost":"/"}],"policies":[{"name":"p","vhost":"/","pattern":"none","definition":{"expiry-strategy":"wasm/a"}}]}`)
	if body := r.do(200, "POST", "/api/definitions", withPolicies(moduleOf("a", "x", ""))); body != `{"warnings":["wasm/a: stays as the configuration has it, which is not as in the file"]}` {
		t.Errorf("got %s", body)
	}
	if all := r.do(200, "GET", "/api/definitions", ""); strings.Contains(all, "wasm_policies") {
		t.Errorf("without its module it is exported: %s", all)
	}
}

func TestImportWarnsOfModules(t *testing.T) {
	r, c := newCarrier(t)
	c.warnings = []string{"reads no config"}
	if body := r.do(200, "POST", "/api/definitions", withPolicies(moduleOf("a", "x", ""))); body != `{"warnings":["wasm/a: reads no config"]}` {
		t.Errorf("got %s", body)
	}
	c.all[0].Fixed = true
	if body := r.do(200, "POST", "/api/definitions", withPolicies(moduleOf("a", "y", ""))); body != `{"warnings":["wasm/a: stays as the configuration has it, which is not as in the file"]}` {
		t.Errorf("got %s", body)
	}
	bare := newRig(t)
	if body := bare.do(200, "POST", "/api/definitions", withPolicies(moduleOf("a", "x", ""))); body != `{"warnings":["wasm_policies: none is loaded, because the plugin wasm is not in plugins.chain"]}` {
		t.Errorf("got %s", body)
	}
	want := "missing expiry policies: wasm/a, which queue 'q' in vhost '/' names; the plugin wasm is not in plugins.chain"
	if body := bare.do(400, "POST", "/api/definitions", withPolicies(moduleOf("a", "x", ""), `"queues":[{"name":"q","vhost":"/","arguments":{"x-expiry-strategy":"wasm/a"}}]`)); !strings.Contains(body, want) {
		t.Errorf("got %s, want %q", body, want)
	}
}

// A policy that could not be written to the disk is the broker's fault, not the client's.
func TestImportWhoseModuleIsNotStored(t *testing.T) {
	r, c := newCarrier(t)
	failing := &failingCarrier{carrier: c}
	r.api.definitions.files.Modules = failing
	r.do(500, "POST", "/api/definitions", withPolicies(moduleOf("a", "x", "")))
}

type failingCarrier struct{ *carrier }

func (failingCarrier) Load(Module) (bool, []string, error) { return false, nil, errors.New("no space") }

// The limit for bodies holds for definitions with modules, and the error names it.
func TestDefinitionsThatAreTooLarge(t *testing.T) {
	r, _ := newCarrier(t)
	want := `"the body of the request has more than 4194304 bytes, which is management.body-size; without expiry policies, definitions are smaller"`
	if body := r.do(413, "POST", "/api/definitions", withPolicies(moduleOf("a", strings.Repeat("x", 4<<20), ""))); !strings.Contains(body, want) {
		t.Errorf("got %s, want %s", body, want)
	}
}

// Queues of all nodes keep a policy from being unloaded, not only queues of the node that unloads it.
func TestUnloadAsksAllNodes(t *testing.T) {
	var carriers []*carrier
	c := newCluster(t, func(o *Options) {
		own := &carrier{}
		carriers = append(carriers, own)
		o.Modules = own
	})
	c.registrar = 1
	c.nodes[1].answer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path != "/api/expiry-strategies" {
			c.rigs[1].api.Forwarded().ServeHTTP(w, q)
			return
		}
		w.Header().Set(shardsHeader, "2")
		_, _ = w.Write([]byte(`[{"name":"wasm/a","default":false,"queues":3,"some":[]}]`))
	}))
	for _, node := range []int{0, 2} {
		if w := c.want(node, 409, "DELETE", "/api/wasm/policies/a", ""); !strings.Contains(w.Body.String(), "3 of them; force takes it from them") {
			t.Errorf("got %s", w.Body)
		}
	}
	c.want(2, 204, "DELETE", "/api/wasm/policies/b", "")
	c.want(2, 204, "DELETE", "/api/wasm/policies/a?force=true", "")
	c.nodes[1].down = true
	if w := c.want(0, 503, "DELETE", "/api/wasm/policies/b", ""); !strings.Contains(w.Body.String(), "queues there may have chosen the policy") {
		t.Errorf("got %s", w.Body)
	}
	if want := []string{"unload b", "unload a!"}; !slices.Equal(carriers[0].calls, want) {
		t.Errorf("called %q, want %q", carriers[0].calls, want)
	}
}

// slowCarrier is the policies of a node that needs a while to load the policies that another node has loaded.
type slowCarrier struct {
	*carrier
	asked         int
	late          int    // how often it still has the earlier policies
	before, after string // descriptions of its policy x
}

func (s *slowCarrier) List() []json.RawMessage {
	if s.asked++; s.asked <= s.late {
		return []json.RawMessage{json.RawMessage(`{"name":"x",` + s.before + `}`)}
	}
	return []json.RawMessage{json.RawMessage(`{"name":"x",` + s.after + `}`)}
}

// described are a module and its settings in a list of policies.
func described(module, more string) string {
	return fmt.Sprintf(`"origin":"loaded","digest":"%x","fuel":"default","on_error":"builtin","grants":null%s`, sha256.Sum256([]byte(module)), more)
}

// The definitions in vhosts wait until the vhosts' owners have loaded the policies of the file, not only others of the same names, or with
// other settings. Until all definitions are checked, the policies are as before: an import of another version waited for it in vain, and
// was refused.
func TestImportWaitsForModules(t *testing.T) {
	const never = 1 << 30
	is := described("code", "")
	for _, tt := range []struct {
		name, settings, before, after string
		late, want                    int
	}{
		{"another version", "", described("before", ""), is, 3, 4},
		{"another configuration", `,"config":{"n":[1,2]}`, is, described("code", `,"config":{"n": [1, 2]}`), 3, 4},
		{"another fuel", `,"fuel":"large"`, is, strings.Replace(is, "default", "large", 1), 3, 4},
		{"other grants", `,"grants":["body"]`, is, strings.Replace(is, "null", `["body"]`, 1), 3, 4},
		{"another choice on errors", `,"on_error":"keep"`, is, strings.Replace(is, "builtin", "keep", 1), 3, 4},
		{"fuel by number", `,"fuel":1000000`, is, is, 0, 2},
		{"a shadow", "", strings.Replace(is, "loaded", "shadow", 1), is, 3, 5},
		{"the configuration's", `,"fuel":"large"`, strings.Replace(described("other", ""), "loaded", "configuration", 1), "", never, 2},
		{"rolled back here", "", described("before", fmt.Sprintf(`,"rolled_back":"%x"`, sha256.Sum256([]byte("code")))), "", never, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var all []*slowCarrier
			c := newCluster(t, func(o *Options) {
				s := &slowCarrier{carrier: &carrier{}, before: tt.before, after: tt.after, late: tt.late}
				all = append(all, s)
				o.Modules = s
			})
			c.registrar = 1
			file := withPolicies(moduleOf("x", "code", tt.settings), `"queues":[{"name":"q","vhost":"b","durable":true,"auto_delete":false,"arguments":{}}]`)
			c.want(0, 204, "POST", "/api/definitions", file)
			c.want(2, 200, "GET", "/api/queues/b/q", "")
			if all[1].asked != tt.want {
				t.Errorf("the owner of the vhost looked %d times for the policy, want %d", all[1].asked, tt.want)
			}
		})
	}
}

// choosyLab tries policies, and refuses one.
type choosyLab struct {
	Lab
	refuses string
	tried   []string
}

func (l *choosyLab) Rehearse(m *Module) (Rehearsal, error) {
	l.tried = append(l.tried, m.Name)
	if string(m.Module) == l.refuses {
		return nil, &ModuleError{Text: `policy "` + m.Name + `": there is no memory for it`}
	}
	return nothingTried{}, nil
}

type nothingTried struct{ Rehearsal }

func (nothingTried) Close() {}

// A file with a next version of a policy that does not work at one of the nodes was in force at the others when it was refused.
func TestImportTriesNextVersions(t *testing.T) {
	var labs []*choosyLab
	var all []*slowCarrier
	c := newCluster(t, func(o *Options) {
		l := &choosyLab{}
		s := &slowCarrier{carrier: &carrier{}, before: described("before", ""), after: described("code", "")}
		s.late = 1 // asked once while it is checked, and then when it is put in force
		labs, all = append(labs, l), append(all, s)
		o.Lab, o.Modules = l, s
	})
	labs[2].refuses = "code"
	before := definitions.Carried{Module: Module{Name: "x", Module: []byte("before"), Digest: "1"}}
	all[0].all = []definitions.Carried{before}
	file := withPolicies(moduleOf("x", "code", ""), `"users":[{"name":"new","password":"p","tags":""}]`,
		`"queues":[{"name":"q","vhost":"a","durable":true},{"name":"q","vhost":"b","durable":true},{"name":"q","vhost":"c","durable":true}]`)
	if w := c.want(0, 400, "POST", "/api/definitions", file); !strings.Contains(w.Body.String(), `at curfew@n3: policy \"x\": there is no memory for it`) {
		t.Errorf("got %s", w.Body)
	}
	c.want(0, 404, "GET", "/api/users/new", "")
	for _, in := range []string{"a", "b", "c"} {
		c.want(0, 404, "GET", "/api/queues/"+in+"/q", "")
	}
	if len(all[0].calls) != 0 {
		t.Errorf("called %q", all[0].calls)
	}
	labs[2].refuses = ""
	for _, s := range all {
		s.asked = 0
	}
	c.want(0, 204, "POST", "/api/definitions", file)
	c.want(0, 200, "GET", "/api/queues/c/q", "")
	if len(labs[1].tried) != 2 {
		t.Errorf("node 2 has tried %q", labs[1].tried)
	}
}

// newCarriers returns a cluster with the policies of its nodes.
func newCarriers(t *testing.T) (c *cluster, all []*carrier) {
	t.Helper()
	c = newCluster(t, func(o *Options) {
		s := &carrier{}
		all = append(all, s)
		o.Modules = s
	})
	return c, all
}

// A dry run loads policies to check the definitions that name them, and unloads them. If an import or an upload had put one of them in
// force meanwhile, it went away, from its queues, too.
func TestADryRunLeavesThePoliciesOfOthers(t *testing.T) {
	file := withPolicies(moduleOf("x", "code", ""), `"users":[{"name":"new","password":"p","tags":""}]`)
	for name, meanwhile := range map[string]func(c *cluster){
		"nothing": func(*cluster) {},
		"import":  func(c *cluster) { c.want(2, 204, "POST", "/api/definitions", file) },
		"upload":  func(c *cluster) { c.want(2, 201, "PUT", "/api/wasm/policies/x", `{"module":"Y29kZQ=="}`) },
	} {
		t.Run(name, func(t *testing.T) {
			c, all := newCarriers(t)
			c.registrar = 2
			var begun atomic.Bool
			c.nodes[1].answer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				if q.Header.Get(stepHeader) == string(definitions.CheckRegistry) && !begun.Swap(true) {
					meanwhile(c)
				}
				c.rigs[1].api.Forwarded().ServeHTTP(w, q)
			}))
			c.want(0, 200, "POST", "/api/definitions?dry-run=true", file)
			if left := len(all[1].all) > 0; left != (name != "nothing") {
				t.Errorf("the policy is left: %v, after %q", left, all[1].calls)
			}
		})
	}
}

// A policy that is loaded for a dry run decides about the messages of queues that have chosen it, at whichever node they are: there is none then.
func TestADryRunHasNoEffectOnQueues(t *testing.T) {
	c, all := newCarriers(t)
	v, _ := c.rigs[2].api.Store.VHost("c")
	_, err := v.DeclareQueue(vhost.QueueDeclare{Name: "q", Durable: true})
	must(t, err)
	rules := policies.NewRules(nil, func() []string { return []string{"wasm/x"} })
	chosen, err := definitions.ReadPolicy(rules, policies.User, "p", []byte(`{"pattern":".","definition":{"expiry-strategy":"wasm/x"}}`))
	must(t, err)
	_, err = v.SetPolicy(policies.User, chosen)
	must(t, err)
	file := withPolicies(moduleOf("x", "code", ""), `"queues":[{"vhost":"a","name":"q"}]`)
	if got := c.want(0, 400, "POST", "/api/definitions?dry-run=true", file).Body.String(); !strings.Contains(got, "expiry policy 'x': queues have chosen it, which is not loaded: 1 of them") {
		t.Errorf("got %s", got)
	}
	for i := range all {
		if all[i].calls != nil {
			t.Errorf("node %d: %q was called", i+1, all[i].calls)
		}
	}
}

// A client that hung up while policies were loaded for its dry run, or for its import, left them there.
func TestADryRunWhoseClientHangsUp(t *testing.T) {
	c, all := newCarriers(t)
	c.registrar = 2
	ctx, hangUp := context.WithCancel(t.Context())
	loaded := make(chan struct{})
	c.nodes[1].answer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get(stepHeader) == string(definitions.LoadModules) {
			defer close(loaded)
			hangUp()
		}
		c.rigs[1].api.Forwarded().ServeHTTP(w, q)
	}))
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/api/definitions?dry-run=true", strings.NewReader(withPolicies(moduleOf("x", "code", ""))))
	r.SetBasicAuth("guest", "guest")
	c.rigs[0].api.ServeHTTP(httptest.NewRecorder(), r)
	<-loaded
	if len(all[1].all) > 0 {
		t.Errorf("%q was called", all[1].calls)
	}
}
