package mgmt

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
)

// good is something of everything that definitions hold.
var good = map[string][]string{
	"vhosts":            {`{"name":"v"}`},
	"users":             {`{"name":"u","password_hash":"","tags":"management"}`},
	"permissions":       {`{"user":"u","vhost":"v","configure":"","write":".*","read":".*"}`},
	"topic_permissions": {`{"user":"u","vhost":"v","exchange":"amq.topic","write":"^a","read":"^a"}`},
	"global_parameters": {`{"name":"g","value":{"a":1}}`},
	"parameters": {
		`{"component":"vhost-limits","vhost":"v","name":"limits","value":{"max-queues":1}}`,
		`{"component":"operator_policy","vhost":"v","name":"o","value":{"pattern":"","definition":{"max-length":9},"priority":0,"apply-to":"queues"}}`,
	},
	"policies":  {`{"vhost":"v","name":"p","pattern":"^q","definition":{"max-length":10}}`, `{"vhost":"/","name":"p","pattern":"^q","definition":{"max-length":10}}`},
	"exchanges": {`{"vhost":"v","name":"x","type":"topic","durable":true}`},
	"queues":    {`{"vhost":"v","name":"q","durable":true}`, `{"vhost":"/","name":"q","durable":true}`},
	"bindings":  {`{"vhost":"v","source":"x","destination":"q","destination_type":"queue","routing_key":"a.#"}`},
}

func definitionsOf(sections map[string][]string) string {
	all := map[string][]json.RawMessage{}
	for name, items := range sections {
		for _, it := range items {
			all[name] = append(all[name], json.RawMessage(it))
		}
	}
	return string(jsonobj.Marshal(all))
}

// An import is all or nothing: if its last definition is refused, none of the earlier ones is there afterwards.
func TestImportIsAllOrNothing(t *testing.T) {
	r := newRig(t)
	before := r.do(200, "GET", "/api/definitions", "")
	for _, tt := range []struct{ name, section, last, want string }{
		{"vhost", "vhosts", `{"name":"w","default_queue_type":"stream"}`, "vhost 'w': default queue type 'stream' is not offered, only 'classic' and 'quorum' (POSITION)"},
		{"user", "users", `{"name":"z","tags":"","password_hash":"AAAA"}`, "user 'z': password_hash of 3 bytes: those of rabbit_password_hashing_sha256 have 36 (POSITION)"},
		{"permissions of nobody", "permissions", `{"user":"z","vhost":"v","configure":"","write":"","read":""}`, "permissions of user 'z': there is no such user"},
		{"permissions nowhere", "permissions", `{"user":"u","vhost":"w","configure":"","write":"","read":""}`, "permissions of user 'u': there is no vhost 'w'"},
		{"topic permissions", "topic_permissions", `{"user":"u","vhost":"v","exchange":"x"}`, "topic permissions of user 'u' in vhost 'v': [{key_missing,write},{key_missing,read}] (POSITION)"},
		{"global parameter", "global_parameters", `{"name":"h"}`, "global parameter 'h': [{key_missing,value}] (POSITION)"},
		{
			"limits", "parameters", `{"component":"vhost-limits","vhost":"v","name":"limits","value":{"foo":1}}`,
			"Validation failed\n\nUnrecognised terms [{<<\"foo\">>,1}] in limits\n (v/vhost-limits/limits)",
		},
		{
			"operator policy", "parameters", `{"component":"operator_policy","vhost":"v","name":"o2","value":{"pattern":"","definition":{"foo":1}}}`,
			"Validation failed\n\n[{<<\"foo\">>,1}] are not recognised policy settings\n (v/operator_policy/o2)",
		},
		{
			"policy", "policies", `{"vhost":"v","name":"p2","pattern":"(","definition":{"max-length":1}}`,
			"Validation failed\n\npattern should be regular expression but is invalid: missing closing ): (\n (v/p2)",
		},
		{"exchange", "exchanges", `{"vhost":"v","name":"y","type":"nothing"}`, "exchange 'y' in vhost 'v': unknown exchange type 'nothing'"},
		{"queue", "queues", `{"vhost":"/","name":"r","arguments":{"x-queue-type":"stream"}}`, "queue 'r' in vhost '/': queue type 'stream' is not offered, only 'classic' and 'quorum'"},
		{"one queue too many", "queues", `{"vhost":"v","name":"r"}`, "vhost 'v': 2 queues: its limit is 1"},
		{
			"binding", "bindings", `{"vhost":"v","source":"amq.headers","destination":"q","destination_type":"queue","arguments":{"x-match":5}}`,
			"binding from 'amq.headers' in vhost 'v': Invalid x-match field type long (value 5); expected longstr",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sections := maps.Clone(good)
			sections[tt.section] = append(slices.Clone(sections[tt.section]), tt.last)
			r.wantRefused(t, sections, tt.want, before)
		})
	}
	t.Run("queue of the default type", func(t *testing.T) {
		sections := maps.Clone(good)
		sections["vhosts"] = append(slices.Clone(sections["vhosts"]), `{"name":"w","default_queue_type":"quorum"}`)
		sections["queues"] = append(slices.Clone(sections["queues"]), `{"vhost":"w","name":"r","durable":true,"arguments":{"x-queue-mode":"lazy"}}`)
		r.wantRefused(t, sections, "invalid arg 'x-queue-mode' for queue 'r' in vhost 'w' of queue type rabbit_quorum_queue", before)
	})
	r.do(204, "POST", "/api/definitions", definitionsOf(good))
	wantMembers(t, r.one("/api/queues/v"), map[string]string{"name": `"q"`, "policy": `"p"`, "operator_policy": `"o"`, "effective_policy_definition": `{"max-length":9}`})
	var granted map[string]any
	r.into("/api/permissions/v/u", &granted)
	wantMembers(t, granted, map[string]string{"write": `".*"`})
}

// atPosition is where an error is. The order of sections is another one each time.
var atPosition = regexp.MustCompile(`\(line 1, column [0-9]+\)`)

// wantRefused imports definitions that are refused for a reason, and checks that the broker's are as before.
func (r *rig) wantRefused(t *testing.T, sections map[string][]string, want, before string) {
	t.Helper()
	w := r.serve(r.request(guest, "POST", "/api/definitions", definitionsOf(sections)))
	var got struct{ Reason string }
	must(t, json.Unmarshal(w.Body.Bytes(), &got))
	got.Reason = atPosition.ReplaceAllString(got.Reason, "(POSITION)")
	if w.Code != 400 || got.Reason != want {
		t.Errorf("got %d %s, want %s", w.Code, got.Reason, want)
	}
	if after := r.serve(r.request(guest, "GET", "/api/definitions", "")).Body.String(); after != before {
		t.Errorf("got\n%.1000s\nwant\n%.1000s", after, before)
	}
}

// Limits were checked only after a part of the import was applied: half of it stayed. For each wrong definition of a file, the whole file
// was read again, twice, to find its position: for this file that took hours, in which no other import could run.
func TestImportOfManyWrongDefinitions(t *testing.T) {
	r := newRig(t)
	const wrong = 20_000
	queues := make([]string, wrong)
	for i := range queues {
		queues[i] = fmt.Sprintf(`{"vhost":"/","name":"queue-%05d","durable":"yes"}`, i)
	}
	file := definitionsOf(map[string][]string{"queues": queues})
	for _, path := range []string{"/api/definitions", "/api/definitions?dry-run=true"} {
		var got struct{ Reason string }
		if err := json.Unmarshal([]byte(r.do(400, "POST", path, file)), &got); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(got.Reason, "\n")
		if len(lines) != 102 || lines[0] != "20000 definitions are refused:" || lines[101] != "and 19900 more" {
			t.Fatalf("%s: got %d lines: %.300s", path, len(lines), got.Reason)
		}
		if last := lines[100]; !strings.Contains(last, "queue-00099") || !strings.HasSuffix(last, "(queues[99].durable: line 1, column 5105)") {
			t.Errorf("%s: the last that is named is %s", path, last)
		}
	}
}

func TestImportOfTooMuchIsNothing(t *testing.T) {
	large, _ := json.Marshal(strings.Repeat("x", 60<<10))
	many := func(n int, layout string) (items []string) {
		for i := range n {
			items = append(items, fmt.Sprintf(layout, i))
		}
		return items
	}
	binding := `{"vhost":"v","source":"x","destination":"q","destination_type":"queue","routing_key":"%d"}`
	parameter := fmt.Sprintf(`{"component":"c","vhost":"v","name":"%%d","value":%s}`, large)
	global := fmt.Sprintf(`{"name":"%%d","value":%s}`, large)
	r := newRig(t, func(o *Options) { o.BodyMax = 64 << 20 })
	before := r.do(200, "GET", "/api/definitions", "")
	for _, tt := range []struct {
		name, section string
		items         []string
		want          string
	}{
		{"bindings", "bindings", many(1001, binding), "vhost 'v': 1001 bindings: limits.bindings is 1000"},
		{"large parameters", "parameters", many(280, parameter), "the parameters in vhost 'v' have 17204770 bytes: at most 16777216 are allowed"},
		{"parameters", "parameters", many(10_001, `{"component":"c","vhost":"v","name":"%d","value":1}`), "10001 parameters in vhost 'v': at most 10000 are allowed"},
		{"large global parameters", "global_parameters", many(280, global), "the global parameters have 17204490 bytes: at most 16777216 are allowed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sections := maps.Clone(good)
			sections[tt.section] = tt.items
			r.wantRefused(t, sections, tt.want, before)
		})
	}
	for range 2 { // definitions that exist already, or twice in the file, do no harm
		sections := maps.Clone(good)
		sections["bindings"] = append(many(1000, binding), many(1000, binding)...)
		sections["parameters"] = append(many(200, parameter), many(200, parameter)...)
		r.do(200, "POST", "/api/definitions", definitionsOf(sections))
	}
}

// A broker without any virtual host had no vhost to check the contents of imported ones with.
func TestImportIntoNothing(t *testing.T) {
	r := newRig(t)
	r.do(204, "DELETE", "/api/vhosts/%2F", "")
	sections := maps.Clone(good)
	sections["vhosts"] = append(slices.Clone(sections["vhosts"]), `{"name":"/"}`)
	r.do(204, "POST", "/api/definitions", definitionsOf(sections))
	wantMembers(t, r.one("/api/queues/v"), map[string]string{"name": `"q"`})
}

// An import into one vhost puts all definitions there, whatever vhost they name, and an error names the vhost.
func TestImportIntoOneVHost(t *testing.T) {
	r := newRig(t)
	r.do(201, "PUT", "/api/vhosts/v", "")
	r.do(204, "POST", "/api/definitions/v", `{"queues":[{"name":"q","vhost":"elsewhere","durable":true}],"policies":[{"name":"p","vhost":"/","pattern":"","definition":{"max-length":1}}]}`)
	wantMembers(t, r.one("/api/queues"), map[string]string{"name": `"q"`, "vhost": `"v"`, "policy": `"p"`})
	got := r.do(400, "POST", "/api/definitions/v", `{"policies":[{"name":"p2","vhost":"/","pattern":"","definition":{"foo":1}}]}`)
	if want := `{"error":"bad_request","reason":"Validation failed\n\n[{<<\"foo\">>,1}] are not recognised policy settings\n (v/p2)"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// About definitions that an import left out, or kept only for a RabbitMQ, there was a line in the log and nothing in the answer: users that
// moved a shovel here did not learn that it does nothing.
func TestImportWarnsOfWhatHasNoEffect(t *testing.T) {
	file := definitionsOf(map[string][]string{
		"vhosts": {`{"name":"v"}`},
		"parameters": {
			`{"component":"shovel","vhost":"v","name":"s","value":{"src-uri":"amqp://"}}`,
			`{"component":"vhost-limits","vhost":"v","name":"limits","value":{"max-queues":1}}`,
		},
		"policies": {`{"vhost":"v","name":"p","pattern":"^q","definition":{"ha-mode":"all"}}`},
		"bindings": {
			`{"vhost":"v","source":"amq.topic","destination":"q","destination_type":"queue","routing_key":"a.#"}`,
			`{"vhost":"v","source":"amq.topic","destination":"q","destination_type":"exchange","routing_key":"a.#"}`,
			`{"vhost":"v","source":"x","destination":"q","destination_type":"queue","routing_key":"a.#"}`,
		},
	})
	want := string(jsonobj.Marshal([]string{
		"parameter 's' of the component shovel in vhost 'v': without effect here",
		"policy 'p' in vhost 'v': without effect here: ha-mode",
		"binding from 'amq.topic' to 'q' in vhost 'v': left out, because there is no queue 'q'",
		"binding from 'amq.topic' to 'q' in vhost 'v': left out, because there is no exchange 'q'",
		"binding from 'x' to 'q' in vhost 'v': left out, because there is no exchange 'x'",
	}))
	dry, did := fmt.Sprintf(`{"definitions":{"vhosts":1,"parameters":2,"policies":1,"bindings":3},"warnings":%s}`, want), fmt.Sprintf(`{"warnings":%s}`, want)
	r, c := newRig(t), newCluster(t)
	for _, tt := range []struct{ path, want string }{{"/api/definitions?dry-run=true", dry}, {"/api/definitions", did}, {"/api/definitions", did}} {
		if got := r.do(200, "POST", tt.path, file); got != tt.want {
			t.Errorf("one broker, %s:\ngot  %s\nwant %s", tt.path, got, tt.want)
		}
		if got := strings.TrimSpace(c.want(0, 200, "POST", tt.path, file).Body.String()); got != tt.want {
			t.Errorf("a cluster, %s:\ngot  %s\nwant %s", tt.path, got, tt.want)
		}
	}
}

// An import leaves exchanges and queues that exist as they are, and used to say nothing if the file has others. The queue of a client that
// declares it as the file says would close the client's channel.
func TestImportWarnsOfWhatExistsOtherwise(t *testing.T) {
	before := definitionsOf(map[string][]string{
		"vhosts":    {`{"name":"v"}`},
		"exchanges": {`{"vhost":"v","name":"x","type":"topic","durable":true}`, `{"vhost":"v","name":"same","type":"direct","durable":true}`},
		"queues": {
			`{"vhost":"v","name":"q","durable":true,"arguments":{"x-max-priority":5}}`,
			`{"vhost":"v","name":"same","durable":true,"arguments":{"x-max-priority":5,"x-queue-type":"classic"}}`,
			`{"vhost":"v","name":"plain","durable":true}`,
		},
	})
	file := definitionsOf(map[string][]string{
		"exchanges": {`{"vhost":"v","name":"x","type":"fanout","durable":true}`, `{"vhost":"v","name":"same","type":"direct","durable":true}`, `{"vhost":"v","name":"amq.topic","type":"topic","durable":true}`},
		"queues": {
			`{"vhost":"v","name":"q","durable":true,"arguments":{"x-max-priority":9}}`,
			`{"vhost":"v","name":"same","durable":true,"arguments":{"x-max-priority":5}}`,
			`{"vhost":"v","name":"plain","durable":true,"arguments":{"x-single-active-consumer":true}}`,
			`{"vhost":"v","name":"new","durable":true}`, `{"vhost":"v","name":"new","durable":true,"arguments":{"x-single-active-consumer":true}}`,
		},
	})
	const twice = "queue 'new' in vhost 'v': the file has it more than once, and the first one counts" // it could end the import half way
	want := string(jsonobj.Marshal([]string{
		"inequivalent arg 'type' for exchange 'x' in vhost 'v': received 'fanout' but current is 'topic'; the exchange stays as it is",
		"inequivalent arg 'x-max-priority' for queue 'q' in vhost 'v': received '9' but current is '5'; the queue stays as it is",
		"inequivalent arg 'x-single-active-consumer' for queue 'plain' in vhost 'v': received the value 'true' of type 'bool' but current is none; the queue stays as it is",
		twice,
	}))
	dry, did := fmt.Sprintf(`{"definitions":{"exchanges":3,"queues":5},"warnings":%s}`, want), fmt.Sprintf(`{"warnings":%s}`, want)
	r, c := newRig(t), newCluster(t)
	r.do(204, "POST", "/api/definitions", before)
	c.want(0, 204, "POST", "/api/definitions", before)
	for _, tt := range []struct{ path, want string }{{"/api/definitions?dry-run=true", dry}, {"/api/definitions", did}} {
		if got := r.do(200, "POST", tt.path, file); got != tt.want {
			t.Errorf("one broker, %s:\ngot  %s\nwant %s", tt.path, got, tt.want)
		}
		if got := strings.TrimSpace(c.want(0, 200, "POST", tt.path, file).Body.String()); got != tt.want {
			t.Errorf("a cluster, %s:\ngot  %s\nwant %s", tt.path, got, tt.want)
		}
	}
}

// The log has a few lines about a file of bindings to the exclusive queues of clients that have gone.
func TestImportOfManyBindingsToNothing(t *testing.T) {
	var file strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&file, `,{"vhost":"/","source":"amq.topic","destination":"amq.gen-%d","destination_type":"queue","routing_key":""}`, i)
	}
	got := newRig(t).do(200, "POST", "/api/definitions", `{"bindings":[`+file.String()[1:]+`]}`)
	if n := strings.Count(got, "left out"); n != 100 || !strings.Contains(got, `"and 900 more"`) {
		t.Errorf("%d bindings are named, want 100: %.2000s", n, got)
	}
}
