package app

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/cmd/curfew/printable"
	"github.com/curfewmq/curfew/cmd/curfew/usage"
	"github.com/curfewmq/curfew/core/broker"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/config"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/policies"
)

// settingFlags are the flags that set a key of the configuration.
var settingFlags = []struct{ name, key, usage string }{
	{"amqp", "listen.amqp", "listen for AMQP on `ADDR` (default :5672)"},
	{"management", "listen.management", "listen for the management API on `ADDR` (default :15672)"},
	{"data", "data.dir", "keep data in `DIR` (default ./curfew-data)"},
	{"cluster", "cluster.nodes", "run as one of the three nodes of a cluster at `ADDRS`: a:5680,b:5680,c:5680"},
	{"cluster-advertise", "cluster.advertise", "this node's `ADDR`, one of --cluster"},
	{"log-level", "log.level", "log from `LEVEL` on: debug, info, warn or error (default info)"},
}

const configHelp = `Every setting has a default. A YAML file overrides the defaults, variables
override the file, flags override variables. The variable of a key has __
between the levels and _ for a dash: limits.frame-max is
CURFEW_LIMITS__FRAME_MAX. CURFEW_CONFIG names the file when --config does not.
`

// configFlags adds the flags for a configuration to f, and returns a function that reads them after parsing.
func configFlags(f *flags) func() (file string, set []config.Flag) {
	file := f.String("config", "", "read the configuration from the YAML file `FILE`")
	for _, s := range settingFlags {
		f.String(s.name, "", s.usage)
	}
	return func() (string, []config.Flag) {
		var set []config.Flag
		f.Visit(func(d *flag.Flag) {
			for _, s := range settingFlags {
				if s.name == d.Name {
					set = append(set, config.Flag{Name: "--" + s.name, Key: s.key, Value: d.Value.String()})
				}
			}
		})
		return *file, set
	}
}

// configuration is a checked configuration and the chain of its plugins.
type configuration struct {
	*config.Config
	chain *chain.Chain
	file  string // the file it was read from, if any
}

// load reads the configuration from file, the environment and set.
func (a *app) load(file string, set []config.Flag, o chain.Options) (configuration, error) {
	o.Reserved = slices.Concat(vhost.Arguments(), policies.Arguments())
	file = cmp.Or(file, usage.Variables(a.environ)[config.FileVariable])
	loaded := configuration{file: file}
	var err error
	loaded.Config, err = config.Load(config.Input{
		File: file, Environ: a.environ, Flags: set, Plugins: a.plugins,
		Check: func(ps []config.Plugin) error {
			var err error
			loaded.chain, err = chain.New(named(ps), o)
			return err
		},
	})
	return loaded, err
}

func named(ps []config.Plugin) []chain.Named {
	ns := make([]chain.Named, len(ps))
	for i, p := range ps {
		ns[i] = chain.Named(p)
	}
	return ns
}

// refuseConfig reports every problem of a configuration on a line of its own.
func (a *app) refuseConfig(command string, err error) int {
	lines := strings.Split(err.Error(), "\n")
	count := "an error"
	if len(lines) > 1 {
		count = fmt.Sprintf("%d errors", len(lines))
	}
	fmt.Fprintf(a.stderr, "curfew %s: the configuration has %s:\n", command, count)
	for _, line := range lines {
		fmt.Fprintf(a.stderr, "  %s\n", line)
	}
	return exitUsage
}

func (a *app) printConfig(args []string) int {
	f := newFlags("config", "Prints the effective configuration as YAML, each value with its source.\nSave it and load it with --config; first replace the *** of passwords.\nWith --from, translates a rabbitmq.conf into Curfew's keys.")
	f.more = configHelp
	read := configFlags(f)
	from := f.String("from", "", "translate `FILE`, a rabbitmq.conf, into Curfew's keys")
	explain := f.Bool("explain", false, "print above each key its meaning, accepted values and variable")
	if code, done := a.parse(f, args); done {
		return code
	}
	file, set := read()
	if *from != "" {
		if file != "" || len(set) > 0 {
			return a.misuse("config", "--from prints what another file says: no flag but --explain goes with it")
		}
		return a.translateConfig(*from, *explain)
	}
	c, err := a.load(file, set, chain.Options{})
	if err != nil {
		return a.refuseConfig("config", err)
	}
	if err := c.Print(a.stdout, *explain); err != nil {
		fmt.Fprintln(a.stderr, "curfew config:", err)
		return exitFailure
	}
	if err := c.checkFiles(); err != nil {
		return a.refuseConfig("config", err)
	}
	return exitOK
}

// translateConfig prints a rabbitmq.conf as our configuration. Comments contain the settings that ours lacks; lines without effect are
// also reported.
func (a *app) translateConfig(file string, explain bool) int {
	t, err := config.Translate(file)
	if err != nil {
		return a.refuseConfig("config", err)
	}
	if err := t.Print(a.stdout, explain); err != nil {
		fmt.Fprintln(a.stderr, "curfew config:", err)
		return exitFailure
	}
	keys, without := t.Counts()
	fmt.Fprintf(a.stderr, "curfew config: %s is translated: keys: %d, lines without a key here: %d (the comments at the end say why)\n", file, keys, without)
	if len(t.Problems) == 0 {
		return exitOK
	}
	fmt.Fprintf(a.stderr, "curfew config: these lines were left out:\n")
	for _, p := range t.Problems {
		fmt.Fprintf(a.stderr, "  %s\n", printable.Text(p.Error()))
	}
	return exitUsage
}

// checkFiles reads the files that the configuration names and that a broker needs to start: certificates, keys and modules.
func (c *configuration) checkFiles() error {
	errs := []error{broker.CheckFiles(c.Config)}
	if h := hostOf(c.Plugins); h != nil {
		errs = append(errs, h.CheckFiles())
	}
	return errors.Join(errs...)
}
