package policy

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/cmd/curfew/usage"
	"github.com/curfewmq/curfew/plugins/wasm"
	"github.com/curfewmq/curfew/sdk/abi"
)

// flags are a command's flags and operands.
type flags struct {
	*flag.FlagSet
	command  *command
	operands []string
}

func newFlags(c *command) *flags {
	f := &flags{FlagSet: flag.NewFlagSet("curfew policy "+c.name, flag.ContinueOnError), command: c}
	if c.flags != nil {
		c.flags(f)
	}
	return f
}

// parse reads a command line. Flags may follow operands.
func (f *flags) parse(args []string) error {
	for {
		rest, err := usage.Parse(f.FlagSet, args)
		switch {
		case errors.Is(err, flag.ErrHelp):
			return err
		case err != nil:
			return misused("%v", err)
		case len(rest) == 0:
			return f.checkOperands()
		}
		f.operands, args = append(f.operands, rest[0]), rest[1:]
	}
}

func (f *flags) checkOperands() error {
	switch wanted := f.command.operands; {
	case len(f.operands) > len(wanted):
		return misused("unexpected argument %q", f.operands[len(wanted)])
	case len(f.operands) < len(wanted) && !strings.HasPrefix(wanted[len(f.operands)], "["):
		return misused("%s is missing", wanted[len(f.operands)])
	}
	return nil
}

// operand returns operand i, or absent if there is none.
func (f *flags) operand(i int, absent string) string {
	if i < len(f.operands) {
		return f.operands[i]
	}
	return absent
}

func (f *flags) text(name string) string { return f.Lookup(name).Value.String() }

func (f *flags) yes(name string) bool { return f.text(name) == "true" }

func (f *flags) given(name string) (found bool) {
	f.Visit(func(g *flag.Flag) { found = found || g.Name == name })
	return found
}

func (f *flags) help(w io.Writer) {
	operands := strings.Join(f.command.operands, " ")
	synopsis := strings.Join(slices.Concat([]string{f.Name()}, f.command.operands, []string{"[FLAGS]"}), " ")
	usage.Page(w, f.Name()+" "+operands+": "+f.command.about, synopsis, f.FlagSet, f.command.more)
}

// settings registers the flags that configure a module.
func settings(f *flags) {
	f.String("config", "", "the policy's `configuration`: a JSON object, or a file with one")
	f.String("grants", "", "a comma-separated `list` of grants: headers, body, route, metrics, trace, hold")
	f.String("fuel", "", "what one call may use: default, large, or a `number`")
	f.String("on-error", "", "what messages get when it fails: builtin, keep or reject")
}

// options reads the flags registered by settings.
func (f *flags) options() (o wasm.Options, err error) {
	if o.Config, err = readConfig(f.text("config")); err != nil {
		return o, err
	}
	if o.Grants, err = f.grants(); err != nil {
		return o, err
	}
	if err := o.Fuel.UnmarshalText([]byte(f.text("fuel"))); err != nil {
		return o, misused("--fuel %s: %v", f.text("fuel"), err)
	}
	if err := o.OnError.UnmarshalText([]byte(f.text("on-error"))); err != nil {
		return o, misused("--on-error %s: %v", f.text("on-error"), err)
	}
	return o, nil
}

// subject reads the module named by operand i, and the flags that configure it.
func (f *flags) subject(i int) (module []byte, o wasm.Options, err error) {
	if module, err = readFile(f.operand(i, ""), maxModule); err != nil {
		return nil, o, err
	}
	o, err = f.options()
	return module, o, err
}

func (f *flags) grants() (list []string, err error) {
	for g := range strings.FieldsFuncSeq(f.text("grants"), isSeparator) {
		if !slices.Contains(abi.Grants(), abi.Grant(g)) {
			return nil, misused("--grants: %q is not a grant, expected one of headers, body, route, metrics, trace, hold", g)
		}
		list = append(list, g)
	}
	return list, nil
}

func isSeparator(r rune) bool { return r == ',' || r == ' ' }

// readConfig reads a configuration: text itself, or the content of the file that text names.
func readConfig(text string) (json.RawMessage, error) {
	if text == "" {
		return nil, nil
	}
	b := []byte(text)
	if !strings.HasPrefix(strings.TrimSpace(text), "{") {
		var err error
		if b, err = readFile(text, abi.MaxConfig); err != nil {
			return nil, misused("--config: %v", err)
		}
	}
	if !json.Valid(b) {
		return nil, misused("--config: is not JSON")
	}
	return b, nil
}

func readFile(name string, most int64) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	b, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s is too large: accepted are up to %d bytes", name, most)
	}
	return b, err
}

// maxModule bounds the size of a module, in bytes.
const maxModule = abi.MaxModule
