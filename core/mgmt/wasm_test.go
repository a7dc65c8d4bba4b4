package mgmt

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
)

// shelf is policies that are only remembered.
type shelf struct {
	loaded  Module
	calls   []string
	alarms  []string
	refusal error

	warnings []string
}

func (s *shelf) List() []json.RawMessage {
	return []json.RawMessage{
		json.RawMessage(`{"name":"a","calls":10,"errors":{"trap":1}}`), json.RawMessage(`{"name":"b","calls":9,"errors":{}}`),
	}
}

func (s *shelf) Load(m Module) (bool, []string, error) {
	s.loaded = m
	return m.Name == "fresh", s.warnings, s.refusal
}

func (s *shelf) Reload(name string, recompute bool) ([]string, error) {
	s.note("reload", name, recompute)
	return s.warnings, s.refusal
}

func (s *shelf) Unload(name string, force bool) error {
	s.note("unload", name, force)
	return s.refusal
}

func (s *shelf) Alarms() []string { return s.alarms }

func (s *shelf) note(what, name string, flag bool) {
	if flag {
		name += "!"
	}
	s.calls = append(s.calls, what+" "+name)
}

func newShelf(t *testing.T) (*rig, *shelf) {
	t.Helper()
	s := &shelf{}
	return newRig(t, func(o *Options) { o.Modules = s }), s
}

func TestModules(t *testing.T) {
	r, s := newShelf(t)
	for _, tt := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/api/wasm/policies", "", 200, `[{"calls":10,"errors":{"trap":1},"name":"a"},{"calls":9,"errors":{},"name":"b"}]`},
		{"GET", "/api/wasm/policies?sort=calls&columns=name", "", 200, `[{"name":"b"},{"name":"a"}]`},
		{"GET", "/api/wasm/policies?page=1&name=a&columns=name", "", 200, `{"filtered_count":1,"item_count":1,"items":[{"name":"a"}],"page":1,"page_count":1,"page_size":100,"total_count":2}`},
		{"GET", "/api/wasm/policies/b", "", 200, `{"calls":9,"errors":{},"name":"b"}`},
		{"GET", "/api/wasm/policies/c", "", 404, `{"error":"Object Not Found","reason":"Not Found"}`},
		{"PUT", "/api/wasm/policies/fresh", `{"module":"AGFzbQ=="}`, 201, ""},
		{"PUT", "/api/wasm/policies/a", `{"module":"AGFzbQ=="}`, 204, ""},
		{"PUT", "/api/wasm/policies/a", `{}`, 400, `{"error":"bad_request","reason":"[{key_missing,module}]"}`},
		{"PUT", "/api/wasm/policies/a", `{"module":"*"}`, 400, `{"error":"bad_request","reason":"module is not base64: illegal base64 data at input byte 0"}`},
		{"PUT", "/api/wasm/policies/a", `{"modul":""}`, 400, `{"error":"bad_request","reason":"unknown member \"modul\"; accepted are module, digest, config, grants, fuel, on_error, recompute, shadow (modul: line 1, column 2)"}`},
		{"PUT", "/api/wasm/policies/a", `{"module":"","grants":"body"}`, 400, `{"error":"bad_request","reason":["not_list","grants: line 1, column 23"]}`},
		{"PUT", "/api/wasm/policies/a", `{"module":"","grants":[1]}`, 400, `{"error":"bad_request","reason":["not_string","grants: line 1, column 23"]}`},
		{"PUT", "/api/wasm/policies/a", `{"module":"","config":[1]}`, 400, `{"error":"bad_request","reason":["not_object","config: line 1, column 23"]}`},
		{"PUT", "/api/wasm/policies/a", `{"module":"","fuel":{}}`, 400, `{"error":"bad_request","reason":["not_string","fuel: line 1, column 21"]}`},
		{"PUT", "/api/wasm/policies/a", `[]`, 400, `{"error":"bad_request","reason":"not_json: line 1, column 1: an object is expected"}`},
		{"POST", "/api/wasm/policies/a/reload", "", 204, ""},
		{"POST", "/api/wasm/policies/a/reload", `{"recompute":true}`, 204, ""},
		{"POST", "/api/wasm/policies/a/reload", `{"recompute":1}`, 400, `{"error":"bad_request","reason":["not_boolean","recompute: line 1, column 14"]}`},
		{"DELETE", "/api/wasm/policies/a", "", 204, ""},
		{"DELETE", "/api/wasm/policies/a?force=true", "", 204, ""},
		{"GET", "/api/health/checks/wasm-policies", "", 200, `{"status":"ok"}`},
	} {
		if got := r.do(tt.status, tt.method, tt.path, tt.body); got != tt.want {
			t.Errorf("%s %s %s: got %s, want %s", tt.method, tt.path, tt.body, got, tt.want)
		}
	}
	if want := []string{"reload a", "reload a!", "unload a", "unload a!"}; !reflect.DeepEqual(s.calls, want) {
		t.Errorf("got %v, want %v", s.calls, want)
	}
	s.alarms = []string{"wasm/a"}
	if got, want := r.do(503, "GET", "/api/health/checks/wasm-policies", ""), `{"status":"failed","reason":"Policies that are not asked","policies":["wasm/a"]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// All that an upload says arrives.
func TestModuleUpload(t *testing.T) {
	r, s := newShelf(t)
	r.do(201, "PUT", "/api/wasm/policies/fresh", `{"module":"AGFzbQ==","digest":"sha256:0a","config":{"b":9007199254740993,"a":{"c":[true]}},
		"grants":["body","route"],"fuel":20000,"on_error":"keep","recompute":true,"shadow":"deadline"}`)
	want := Module{
		Name: "fresh", Module: []byte("\x00asm"), Digest: "sha256:0a", Config: json.RawMessage(`{"a":{"c":[true]},"b":9007199254740993}`),
		Grants: []string{"body", "route"}, Fuel: "20000", OnError: "keep", Recompute: true, Shadow: "deadline",
	}
	if !reflect.DeepEqual(s.loaded, want) {
		t.Errorf("got %+v, want %+v", s.loaded, want)
	}
}

func TestModuleErrors(t *testing.T) {
	r, s := newShelf(t)
	for _, tt := range []struct {
		refusal error
		status  int
		want    string
	}{
		{&ModuleError{ModuleRefused, "no"}, 400, `{"error":"bad_request","reason":"no"}`},
		{&ModuleError{NoModule, "none"}, 404, `{"error":"not_found","reason":"none"}`},
		{&ModuleError{ModuleInUse, "busy"}, 409, `{"error":"conflict","reason":"busy"}`},
		{errors.New("disk"), 500, `{"error":"internal_error","reason":"see the broker logfile"}`},
	} {
		s.refusal = tt.refusal
		for _, method := range []string{"PUT", "DELETE"} {
			if got := r.do(tt.status, method, "/api/wasm/policies/a", `{"module":""}`); got != tt.want {
				t.Errorf("%s: got %s, want %s", method, got, tt.want)
			}
		}
		if got := r.do(tt.status, "POST", "/api/wasm/policies/a/reload", ""); got != tt.want {
			t.Errorf("reload: got %s, want %s", got, tt.want)
		}
	}
}

func TestWithoutModules(t *testing.T) {
	r := newRig(t)
	for _, path := range []string{"/api/wasm/policies", "/api/health/checks/wasm-policies"} {
		if got, want := r.do(404, "GET", path, ""), `{"error":"not_found","reason":"the plugin wasm is not in plugins.chain"}`; got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

// A policy that was loaded with warnings is answered with them.
func TestModuleWarnings(t *testing.T) {
	r, s := newShelf(t)
	s.warnings = []string{"config: a was not read"}
	want := `{"warnings":["config: a was not read"]}`
	for _, tt := range []struct {
		method, path string
		status       int
	}{
		{"PUT", "/api/wasm/policies/fresh", 201}, {"PUT", "/api/wasm/policies/a", 200}, {"POST", "/api/wasm/policies/a/reload", 200},
	} {
		if got := r.do(tt.status, tt.method, tt.path, `{"module":""}`); got != want {
			t.Errorf("%s %s: got %s, want %s", tt.method, tt.path, got, want)
		}
	}
}
