package policy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/curfewmq/curfew/cmd/curfew/ctl"
	"github.com/curfewmq/curfew/cmd/curfew/printable"
	"github.com/curfewmq/curfew/plugins/wasm"
)

// remote registers the flags for the management API, which are the same as for "curfew ctl".
func remote(f *flags) {
	ctl.Flags(f.FlagSet)
	f.Duration("timeout", time.Minute, "give up after this time (default 1m)")
}

// environmentHelp is the text below the flags of commands that call the API.
const environmentHelp = "Defaults: CURFEW_CTL_URL, CURFEW_CTL_USERNAME and CURFEW_CTL_PASSWORD, as for \"curfew ctl\".\n"

// connect finds the API named by the flags of remote. The context ends after --timeout.
func (p *Program) connect(ctx context.Context, f *flags) (context.Context, func(), *ctl.Remote, error) {
	timeout := value[time.Duration](f, "timeout")
	if timeout <= 0 {
		return nil, nil, nil, misused("--timeout %v: must be more than 0", timeout)
	}
	r, err := ctl.Connect(ctl.Given(f.FlagSet), p.Environ, p.transport)
	if err != nil {
		return nil, nil, nil, misused("%v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	return ctx, func() { cancel(); r.Close() }, r, nil
}

// call makes one call of the API.
func (p *Program) call(ctx context.Context, f *flags, method, path string, body, into any) error {
	ctx, done, r, err := p.connect(ctx, f)
	if err != nil {
		return err
	}
	defer done()
	return r.Call(ctx, method, path, body, into)
}

func loadCommand() command {
	return command{
		name: "load", operands: []string{"NAME", "MODULE.wasm"}, run: runLoad,
		about: "loads a module, or its next version, into a running broker",
		flags: func(f *flags) {
			settings(f)
			f.Bool("recompute", false, "also ask for new deadlines of messages already queued")
			f.String("shadow", "", "run it beside this `strategy`, without effect, and count differences")
			remote(f)
		},
		more: "Queues with the x-expiry-strategy wasm/NAME use it. " + environmentHelp,
	}
}

// upload is a policy in the form that the API expects.
type upload struct {
	Module    []byte          `json:"module"` // in base64
	Digest    string          `json:"digest"`
	Config    json.RawMessage `json:"config,omitempty"`
	Grants    []string        `json:"grants,omitempty"`
	Fuel      string          `json:"fuel,omitempty"`
	OnError   string          `json:"on_error,omitempty"`
	Recompute bool            `json:"recompute,omitempty"`
	Shadow    string          `json:"shadow,omitempty"`
}

func runLoad(ctx context.Context, p *Program, f *flags) error {
	module, o, err := f.subject(1)
	if err != nil {
		return err
	}
	if f.yes("recompute") && f.given("shadow") {
		return misused("--recompute has no effect with --shadow, which applies nothing")
	}
	if _, err := wasm.Inspect(module); err != nil {
		return err // a mistake that shows without a broker
	}
	digest := sha256.Sum256(module)
	u := upload{
		Module: module, Digest: hex.EncodeToString(digest[:]), Config: o.Config, Grants: o.Grants,
		Fuel: f.text("fuel"), OnError: f.text("on-error"), Recompute: f.yes("recompute"), Shadow: f.text("shadow"),
	}
	var answer loaded
	if err := p.call(ctx, f, http.MethodPut, modulePath(f.operand(0, "")), &u, &answer); err != nil {
		return err
	}
	p.warn(answer.Warnings)
	if u.Shadow != "" {
		fmt.Fprintf(p.Stdout, "%s runs beside %s, sha256:%s\n", f.operand(0, ""), u.Shadow, u.Digest)
		return nil
	}
	fmt.Fprintf(p.Stdout, "loaded as the expiry strategy wasm/%s, sha256:%s\n", f.operand(0, ""), u.Digest)
	return nil
}

// loaded is the API's answer after a policy was loaded.
type loaded struct {
	Warnings []string `json:"warnings"`
}

func modulePath(name string) string { return ctl.Path("wasm", "policies", name) }

func reloadCommand() command {
	return command{
		name: "reload", operands: []string{"NAME"}, run: runReload,
		about: "makes a running broker load a policy again, from its file or the stored module",
		flags: func(f *flags) {
			f.Bool("recompute", false, "also ask for new deadlines of messages already queued")
			remote(f)
		},
		more: environmentHelp,
	}
}

func runReload(ctx context.Context, p *Program, f *flags) error {
	body := map[string]bool{"recompute": f.yes("recompute")}
	var answer loaded
	err := p.call(ctx, f, http.MethodPost, ctl.Path("wasm", "policies", f.operand(0, ""), "reload"), body, &answer)
	p.warn(answer.Warnings)
	return hinted(err)
}

// hinted adds to the error for a policy that does not exist how to find those that do.
func hinted(err error) error {
	if r, ok := errors.AsType[*ctl.Refusal](err); ok && r.Status == http.StatusNotFound {
		return fmt.Errorf("%w; \"curfew policy list\" names the loaded ones", err)
	}
	return err
}

func unloadCommand() command {
	return command{
		name: "unload", operands: []string{"NAME"}, run: runUnload,
		about: "removes an expiry policy from a running broker",
		flags: func(f *flags) {
			f.Bool("force", false, "even if queues have chosen it; these get the default strategy")
			remote(f)
		},
		more: environmentHelp,
	}
}

func runUnload(ctx context.Context, p *Program, f *flags) error {
	path := modulePath(f.operand(0, ""))
	if f.yes("force") {
		path += "?force=true"
	}
	return hinted(p.call(ctx, f, http.MethodDelete, path, nil, nil))
}

func listCommand() command {
	return command{
		name: "list", run: runList,
		about: "lists the expiry policies of a running broker, with counters and errors",
		flags: func(f *flags) {
			f.Bool("json", false, "print everything that the broker reports, as JSON")
			remote(f)
		},
		more: environmentHelp,
	}
}

func runList(ctx context.Context, p *Program, f *flags) error {
	var all json.RawMessage
	if err := p.call(ctx, f, http.MethodGet, ctl.Path("wasm", "policies"), nil, &all); err != nil {
		return err
	}
	if f.yes("json") {
		_, err := fmt.Fprintf(p.Stdout, "%s\n", printable.JSON(all))
		return err
	}
	var list []wasm.Info
	if err := json.Unmarshal(all, &list); err != nil {
		return fmt.Errorf("the answer is not understood: %w", err)
	}
	out := printable.Writer(p.Stdout) // modules choose the texts of their errors
	if err := table(out, list); err != nil {
		return err
	}
	for _, i := range list {
		for _, w := range i.Warnings {
			fmt.Fprintf(out, "%s: warning: %s\n", i.Name, below(w))
		}
		if i.LastError != "" {
			fmt.Fprintf(out, "%s: %s\n", i.Name, below(i.LastError))
		}
		if i.RolledBackFor != "" {
			fmt.Fprintf(out, "%s: rolled back from %.12s: %s\n", i.Name, i.RolledBack, below(i.RolledBackFor))
		}
		if i.Undecided > 0 {
			fmt.Fprintf(out, "%s: %d messages came while it failed; it will be called about them again\n", i.Name, i.Undecided)
		}
		if i.AskedAgain > 0 {
			fmt.Fprintf(out, "%s: it was called again about %d messages that came while it failed, %d of which got another deadline\n", i.Name, i.AskedAgain, i.Renewed)
		}
	}
	return nil
}

// below indents all lines of an error except the first, such as the stack of a module's panic, so that the next policy is recognizable.
func below(text string) string {
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ")
}

func table(to io.Writer, list []wasm.Info) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "name\torigin\tstate\thooks\tmessages\terrors\tfuel\tmemory\tdigest")
	for _, i := range list {
		errs := uint64(0)
		for _, n := range i.Errors {
			errs += n
		}
		fuel, err := i.Fuel.MarshalText()
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\t%.12s\n", i.Name, origin(&i), state(&i), strings.Join(i.Hooks, ","),
			i.Messages, errs, fuel, wasm.Size(i.Memory), i.Digest)
	}
	return w.Flush()
}

func origin(i *wasm.Info) string {
	if i.Shadow != nil {
		return fmt.Sprintf("%s of %s", i.Origin, i.Shadow.Strategy)
	}
	return string(i.Origin)
}

// state describes the state of a policy.
func state(i *wasm.Info) string {
	switch {
	case !i.Loaded:
		return "not loaded"
	case i.Breaker == "open":
		return "not asked until " + i.OpenUntil.UTC().Format(time.DateTime)
	case i.Shadow != nil:
		return fmt.Sprintf("differs in %d of %d", i.Shadow.Differing, i.Shadow.Compared)
	case i.RolledBack != "":
		return "rolled back"
	}
	return "works"
}
