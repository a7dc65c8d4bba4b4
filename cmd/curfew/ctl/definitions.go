package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/cmd/curfew/printable"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
)

func definitionCommands() []command {
	format := option{long: "format", value: "json", about: "json is the only format"}
	return []command{
		{
			name: "export_definitions", operands: "<file>|-", scoped: true,
			options: []option{format, {long: "without-modules", about: "leave out expiry policies"}},
			check:   checkExport, run: exportDefinitions,
			about: "writes vhosts, users, permissions, policies, exchanges, queues and bindings to a file",
			more:  "With --vhost, only that virtual host. Includes expiry policies in WebAssembly, which RabbitMQ ignores. - is standard output.",
		},
		{
			name: "import_definitions", operands: "[<file>|-]", scoped: true, options: []option{format, {long: "skip-if-unchanged"}, {long: "dry-run", about: "check the file, and change nothing"}},
			check: checkImport, run: importDefinitions,
			about: "imports definitions exported by export_definitions or RabbitMQ", more: "Everything is applied, or nothing. Queues and exchanges that exist stay as they are; warnings name those that differ from the file.\n- or no file is standard input. With --vhost, it goes into that virtual host.",
		},
	}
}

// definitions returns the path of the definitions: of one virtual host with --vhost, otherwise of all.
func (c *call) definitions() string {
	if c.has("vhost") {
		return path("definitions", c.vhost())
	}
	return path("definitions")
}

func checkFormat(c *call) error {
	if c.has("format") && c.value("format") != "json" {
		return &misuse{dataError, "Bad argument: Format should be json"}
	}
	return nil
}

func checkExport(c *call) error {
	if err := checkFormat(c); err != nil || c.operands[0] == "-" {
		return err
	}
	dir := filepath.Dir(c.operands[0])
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return &misuse{dataError, fmt.Sprintf("Bad argument: Directory %s does not exist", dir)}
	}
	return nil
}

// exportDefinitions writes a file that only its owner can read, because it contains password hashes.
func exportDefinitions(ctx context.Context, c *call) error {
	file := c.operands[0]
	if file != "-" {
		c.banner("Exporting definitions in JSON to a file at \"%s\" ...", file)
	}
	var all json.RawMessage
	from := c.definitions()
	if c.has("without-modules") {
		from += "?modules=false"
	}
	if err := c.api.get(ctx, from, &all); err != nil {
		if c.has("vhost") {
			return c.missing(err, noVHost)
		}
		return err
	}
	if file == "-" {
		_, err := c.program.Stdout.Write(append(all, '\n'))
		return err
	}
	if err := os.WriteFile(file, append(all, '\n'), 0o600); err != nil {
		return failed(unavailable, "%v", err)
	}
	return c.done()
}

func (c *call) imported() string {
	if len(c.operands) == 0 {
		return "-"
	}
	return c.operands[0]
}

func checkImport(c *call) error {
	if err := checkFormat(c); err != nil || c.imported() == "-" {
		return err
	}
	if _, err := os.Stat(c.imported()); errors.Is(err, os.ErrNotExist) {
		return &misuse{dataError, fmt.Sprintf("Bad argument: File %s does not exist", c.imported())}
	}
	return nil
}

func importDefinitions(ctx context.Context, c *call) error {
	text, err := c.readImport()
	if err != nil {
		return failed(dataError, "%v", err)
	}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	if _, err := jsonobj.Parse(text); err != nil {
		why := strings.TrimPrefix(err.Error(), jsonobj.ErrNotJSON.Error()+": ")
		return failed(dataError, "Failed to deserialise input (format: JSON) (error: %s%s)", c.importedFile(), why)
	}
	var answer struct {
		Warnings    []string       `json:"warnings"`
		Definitions map[string]int `json:"definitions"` // of a dry run
	}
	where := c.definitions()
	if c.has("dry-run") {
		where += "?dry-run=true"
	}
	if err := c.api.call(ctx, http.MethodPost, where, json.RawMessage(text), &answer); err != nil {
		if r, ok := errors.AsType[*refusal](err); ok && r.status == http.StatusBadRequest {
			return failed(dataError, "%s%s", c.importedFile(), r.reason)
		}
		return err
	}
	for _, w := range answer.Warnings {
		fmt.Fprintln(c.program.Stderr, "Warning:", printable.Lines(w))
	}
	if !c.has("dry-run") {
		return c.result("Successfully imported definitions.")
	}
	var counts []string
	for _, section := range slices.Sorted(maps.Keys(answer.Definitions)) {
		counts = append(counts, fmt.Sprintf("%d %s", answer.Definitions[section], strings.ReplaceAll(section, "_", " ")))
	}
	return c.result("The definitions can be imported: %s. Nothing was changed.", strings.Join(counts, ", "))
}

func (c *call) readImport() ([]byte, error) {
	if c.imported() == "-" {
		c.banner("Importing definitions in JSON from standard input ...")
		return io.ReadAll(c.program.Stdin)
	}
	c.banner("Importing definitions in JSON from a file at \"%s\" ...", c.imported())
	return os.ReadFile(c.imported())
}

// importedFile returns the file's name as the beginning of an error text; "" for standard input.
func (c *call) importedFile() string {
	if c.imported() == "-" {
		return ""
	}
	return c.imported() + ": "
}
