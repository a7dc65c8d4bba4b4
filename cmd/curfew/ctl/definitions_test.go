package ctl

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// transfer calls the tool with an API that gives these answers. It returns the requests and the results.
func transfer(t *testing.T, stdin string, answers []string, args ...string) (requests []string, status int, stdout, stderr string) {
	t.Helper()
	api := &fake{answers: answers}
	server := httptest.NewServer(api)
	defer server.Close()
	var out, errs strings.Builder
	p := &Program{Name: "curfew ctl", Environ: []string{urlVariable + "=" + server.URL}, Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs}
	status = p.Run(args)
	for _, line := range api.log {
		if strings.HasPrefix(line, ">") {
			requests = append(requests, line)
		}
	}
	return requests, status, out.String(), errs.String()
}

func TestExport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "definitions.json")
	const all = `{"users":[{"name":"<é>"}]}`
	requests, status, stdout, stderr := transfer(t, "", []string{"200 " + all}, "export_definitions", file)
	if status != 0 || stderr != "" || stdout != "Exporting definitions in JSON to a file at \""+file+"\" ...\n" {
		t.Errorf("exit status %d: %s%s", status, stdout, stderr)
	}
	if want := []string{"> GET /api/definitions"}; !slices.Equal(requests, want) {
		t.Errorf("asked %v, want %v", requests, want)
	}
	text, err := os.ReadFile(file)
	if err != nil || string(text) != all+"\n" {
		t.Errorf("wrote %q, %v", text, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("password hashes lie open: %v %v", info.Mode(), err)
	}
}

func TestExportToStandardOutput(t *testing.T) {
	requests, status, stdout, _ := transfer(t, "", []string{`200 {"queues":[]}`}, "export_definitions", "-", "-p", "v1")
	if status != 0 || stdout != "{\"queues\":[]}\n" || requests[0] != "> GET /api/definitions/v1" {
		t.Errorf("exit status %d, asked %v: %s", status, requests, stdout)
	}
}

func TestImport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "definitions.json")
	// With a byte order mark, which editors of some systems add.
	broken := filepath.Join(t.TempDir(), "broken.json")
	for name, text := range map[string]string{file: "\xef\xbb\xbf{\"queues\": []}\n", broken: "{\n  x"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name, args, stdin, answer string
		request                   string
		status                    int
		stdout, stderr            string
	}{
		{
			"file", file, "", "204", `> POST /api/definitions {"queues": []}` + "\n", 0,
			"Importing definitions in JSON from a file at \"" + file + "\" ...\nSuccessfully imported definitions.\n", "",
		},
		{
			"standard input", "-", `{"users":[]}`, "204", `> POST /api/definitions {"users":[]}`, 0,
			"Importing definitions in JSON from standard input ...\nSuccessfully imported definitions.\n", "",
		},
		{
			"into a virtual host", "-q -p v1", `{"users":[]}`, "204", `> POST /api/definitions/v1 {"users":[]}`, 0,
			"Successfully imported definitions.\n", "",
		},
		{
			"a dry run", "-q --dry-run", `{"users":[]}`, `200 {"definitions":{"users":2,"topic_permissions":1},"warnings":["mind the gap"]}`, `> POST /api/definitions?dry-run=true {"users":[]}`, 0,
			"The definitions can be imported: 1 topic permissions, 2 users. Nothing was changed.\n", "Warning: mind the gap\n",
		},
		{
			"warnings", "-q", `{"users":[]}`, `200 {"warnings":["the queue stays as it is"]}`, `> POST /api/definitions {"users":[]}`, 0,
			"Successfully imported definitions.\n", "Warning: the queue stays as it is\n",
		},
		{
			"refused", "-q", `{"users":[{}]}`, `400 {"error":"bad_request","reason":"a user has no name"}`, `> POST /api/definitions {"users":[{}]}`, dataError,
			"", "Error:\na user has no name\n",
		},
		{
			"not JSON", "-q", `{"users":`, "", "", dataError,
			"", "Error:\nFailed to deserialise input (format: JSON) (error: line 1, column 10: it ends too early)\n",
		},
		{
			"refused file", "-q " + file, "", `400 {"error":"bad_request","reason":"queues: line 1, column 12: is not a list"}`,
			`> POST /api/definitions {"queues": []}` + "\n", dataError,
			"", "Error:\n" + file + ": queues: line 1, column 12: is not a list\n",
		},
		{
			"a file that is not JSON", "-q " + broken, "", "", "", dataError,
			"", "Error:\nFailed to deserialise input (format: JSON) (error: " + broken + ": line 2, column 3: invalid character 'x' looking for beginning of object key string)\n",
		},
		{"no file", "/nosuch.json", "", "", "", dataError, "", "Error (argument validation): Bad argument: File /nosuch.json does not exist\n…"},
		{"Erlang", "--format erlang", "", "", "", dataError, "", "Error (argument validation): Bad argument: Format should be json\n…"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			requests, status, stdout, stderr := transfer(t, tt.stdin, []string{tt.answer}, append([]string{"import_definitions"}, strings.Fields(tt.args)...)...)
			if status != tt.status || stdout != tt.stdout {
				t.Errorf("exit status %d, want %d: %s", status, tt.status, stdout)
			}
			if want, cut := strings.CutSuffix(tt.stderr, "…"); cut && !strings.HasPrefix(stderr, want) || !cut && stderr != want {
				t.Errorf("stderr %q, want %q", stderr, want)
			}
			if got := strings.Join(requests, "\n"); got != tt.request {
				t.Errorf("asked %s, want %s", got, tt.request)
			}
		})
	}
}

func TestExportIntoNoFolder(t *testing.T) {
	_, status, _, stderr := transfer(t, "", nil, "export_definitions", "/no/such/folder/x.json")
	if status != dataError || !strings.HasPrefix(stderr, "Error (argument validation): Bad argument: Directory /no/such/folder does not exist\n") {
		t.Errorf("exit status %d: %s", status, stderr)
	}
}
