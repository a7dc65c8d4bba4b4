package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/curfewmq/curfew/core/broker"
	"github.com/curfewmq/curfew/core/cluster"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
	"github.com/curfewmq/curfew/plugins/wasm"
)

// folderCommands are the subcommands of "curfew ctl cluster" that make the data folder of a node while no broker runs.
func (a *app) folderCommands() map[string]func(args []string) int {
	return map[string]func(args []string) int{"import": a.importFolder, "restore": a.restoreFolder}
}

// defaultClusterShards is the default of cluster.shards.
const defaultClusterShards = 3

const nextSteps = `Start one node with this folder and two with empty folders: they become a new cluster.
Deadlines are points in time: messages due by then expire when the nodes start.
core/cluster/README.md explains it step by step.
`

func (a *app) importFolder(args []string) int {
	f := newFlags("ctl cluster import", "Makes the data folder of the first node of a cluster from that of a stopped single\n"+
		"broker: definitions, users, expiry policies and messages.\nThe broker's folder is only read.")
	f.more = nextSteps
	from := f.String("from", "", "the data `directory` of the broker")
	to := f.String("data", "", "the data `directory` to make, empty or missing")
	shards := f.Int("shards", defaultClusterShards, "the cluster's `number` of shards (cluster.shards), 1 to 255 (default "+strconv.Itoa(defaultClusterShards)+")")
	return a.makeFolder(f, args, from, to, func(ctx context.Context) error {
		if *shards < 1 || *shards > store.MaxShards {
			return &misusedFlag{fmt.Sprintf("--shards %d: 1 to %d are allowed", *shards, store.MaxShards)}
		}
		done, err := importBroker(ctx, *from, *to, uint32(*shards))
		if err != nil {
			return err
		}
		fmt.Fprintf(a.stdout, "%s: made from %s: %d virtual hosts, %d queues, %d expiry policies, %d bytes of messages and their state\n",
			*to, *from, done.VHosts, done.Queues, done.Modules, done.Bytes)
		return nil
	})
}

func (a *app) restoreFolder(args []string) int {
	f := newFlags("ctl cluster restore", "Makes the data folder of the first node of a new cluster from a copy of a node's folder,\n"+
		"made while that node was stopped. The copy is only read.")
	f.more = nextSteps
	from := f.String("from", "", "the copy of a node's data `directory`")
	to := f.String("data", "", "the data `directory` to make, empty or missing")
	return a.makeFolder(f, args, from, to, func(ctx context.Context) error {
		c, err := cluster.OpenCopy(*from)
		if err != nil {
			return err
		}
		entries, err := cluster.Restore(ctx, c, *to)
		if err = errors.Join(err, c.Close()); err != nil {
			return err
		}
		fmt.Fprintf(a.stdout, "%s: made from %s, the data of the node at %s: %d shards of virtual hosts, %d entries\n", *to, *from, c.Node(), c.Shards(), entries)
		return nil
	})
}

// misusedFlag is an error in the command line.
type misusedFlag struct{ problem string }

func (m *misusedFlag) Error() string { return m.problem }

// makeFolder runs a command that makes a folder. Ctrl-C interrupts it.
func (a *app) makeFolder(f *flags, args []string, from, to *string, run func(ctx context.Context) error) int {
	if code, done := a.parse(f, args); done {
		return code
	}
	switch {
	case *from == "":
		return a.misuse(f.Name(), "--from is missing: it names the directory to read")
	case *to == "":
		return a.misuse(f.Name(), "--data is missing: it names the directory to make")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx)
	if m, ok := errors.AsType[*misusedFlag](err); ok {
		return a.misuse(f.Name(), m.problem)
	}
	if err == nil {
		fmt.Fprintf(a.stdout, "Start a node with it, and the two others with empty folders.\n")
		return exitOK
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("interrupted: %s is not made", *to)
	}
	fmt.Fprintf(a.stderr, "curfew %s: %v%s\n", f.Name(), err, folderHint(err))
	return exitFailure
}

// folderHint returns advice for an error.
func folderHint(err error) string {
	switch {
	case errors.Is(err, vfs.ErrLocked):
		return "; stop that broker first"
	case errors.Is(err, wlog.ErrFull), vfs.NoSpace(err):
		return "; the disk of --data is full"
	}
	return ""
}

// importBroker makes a node's folder from a broker's.
func importBroker(ctx context.Context, from, to string, shards uint32) (done store.Imported, err error) {
	if err := cluster.CheckSource(from); err != nil {
		return done, err
	}
	reader, err := seg.NewReader(vfs.Dir(from))
	if err != nil {
		return done, fmt.Errorf("%s: %w", from, err)
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	modules, err := modulesIn(broker.PolicyFolder(from))
	if err != nil {
		return done, err
	}
	made, err := cluster.Make(to, shards)
	if err != nil {
		return done, err
	}
	i := store.Import{From: reader, Shards: shards, Modules: modules, To: func(shard uint32) (store.ImportLog, error) {
		return made.Found(ctx, shard)
	}}
	if done, err = i.Run(ctx); err != nil {
		return done, errors.Join(fmt.Errorf("%s: %w", from, err), made.Close())
	}
	return done, made.Finish(ctx)
}

// modulesIn returns the expiry policies that were loaded at runtime, in the form used by a cluster's registry.
func modulesIn(folder string) (all []store.Module, err error) {
	stored, err := wasm.Dir(folder).LoadAll()
	if err != nil {
		return nil, err
	}
	for _, k := range stored {
		if k.Damage != nil {
			return nil, fmt.Errorf("expiry policy %q cannot be read: %w; delete that file, and load the policy again later", k.Name, k.Damage)
		}
		options, err := json.Marshal(moduleOptions{Options: k.Options})
		if err != nil {
			return nil, err
		}
		all = append(all, store.Module{Name: k.Name, Options: options, Bytes: k.Module})
	}
	return all, nil
}
