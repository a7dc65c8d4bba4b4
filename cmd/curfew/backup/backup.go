// Package backup implements "curfew backup" and "curfew restore": one file with everything that a restart of a broker would find, and a
// data directory made from such a file. Package core/backup has the format.
package backup

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/curfewmq/curfew/cmd/curfew/ctl"
	"github.com/curfewmq/curfew/cmd/curfew/printable"
	"github.com/curfewmq/curfew/cmd/curfew/usage"
	"github.com/curfewmq/curfew/core/backup"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// Program is one run of a command.
type Program struct {
	Version        string
	Environ        []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	transport http.RoundTripper // nil = the network
}

// Exit statuses. A wrong call has another status than a failed backup.
const (
	exitFailure = 1
	exitUsage   = 2
)

// command is a command with its help texts and its function.
type command struct {
	name, operand, about, more string
	flags                      func(f *flag.FlagSet)
	run                        func(ctx context.Context, p *Program, c *call) error
}

// call is a command line.
type call struct {
	*flag.FlagSet
	operand string
}

func (c *call) text(name string) string { return c.Lookup(name).Value.String() }

func (c *call) yes(name string) bool { return c.text(name) == "true" }

// misuse is an error in the command line.
type misuse struct{ problem string }

func (m *misuse) Error() string { return m.problem }

func misused(format string, args ...any) error { return &misuse{fmt.Sprintf(format, args...)} }

// Backup executes "curfew backup" with args and returns the exit status: 0, 1 for a failure, 2 for a wrong call.
func (p *Program) Backup(args []string) int { return p.execute(&backupCommand, args) }

// Restore executes "curfew restore" in the same way as Backup.
func (p *Program) Restore(args []string) int { return p.execute(&restoreCommand, args) }

func (p *Program) execute(cmd *command, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends operations that do not react to the first, such as a write to a blocked pipe
	c := &call{FlagSet: flag.NewFlagSet("curfew "+cmd.name, flag.ContinueOnError)}
	cmd.flags(c.FlagSet)
	err := c.parse(cmd, args)
	if errors.Is(err, flag.ErrHelp) {
		usage.Page(p.Stdout, cmd.about, "curfew "+cmd.name+" [FLAGS] "+cmd.operand, c.FlagSet, cmd.more)
		return 0
	}
	if err == nil {
		err = cmd.run(ctx, p, c)
	}
	if err == nil {
		return 0
	}
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	fmt.Fprintf(p.Stderr, "curfew %s: %s\n", cmd.name, printable.Lines(err.Error()))
	if _, ok := errors.AsType[*misuse](err); ok {
		fmt.Fprintf(p.Stderr, "Run \"curfew help %s\" for help.\n", cmd.name)
		return exitUsage
	}
	return exitFailure
}

// parse reads a command line. Flags may follow the operand.
func (c *call) parse(cmd *command, args []string) error {
	for {
		rest, err := usage.Parse(c.FlagSet, args)
		switch {
		case errors.Is(err, flag.ErrHelp):
			return err
		case err != nil:
			return misused("%v", err)
		case len(rest) == 0 && c.operand == "":
			return misused("FILE is missing")
		case len(rest) == 0:
			return nil
		case c.operand != "":
			return misused("unexpected argument %q", rest[0])
		case rest[0] == "":
			return misused("FILE is empty")
		}
		c.operand, args = rest[0], rest[1:]
	}
}

var backupCommand = command{
	name: "backup", operand: "FILE|-",
	about: "Writes everything that a restart of the broker would find to one file: definitions, expiry\n" +
		"policies and messages, as of one instant. The broker keeps running. Of a cluster, any node\n" +
		"writes all of it. - is standard output.",
	more: "A backup leaves out messages that a restart would lose: those that are not persistent, or in queues\n" +
		"that are not durable or are exclusive. It leaves out the configuration, certificates and keys, and all\n" +
		"that ends with the broker, such as connections, events and metrics.\n" +
		"FILE appears, or is replaced, once the backup is complete and its digests are checked.\n" +
		"Defaults: CURFEW_CTL_URL, CURFEW_CTL_USERNAME and CURFEW_CTL_PASSWORD, as for \"curfew ctl\".\n" +
		"The user needs the tag administrator. cmd/curfew/backup/README.md covers restoring and upgrading.\n",
	flags: func(f *flag.FlagSet) {
		f.String("data", "", "back up this data `directory` of a stopped broker")
		f.Bool("gzip", false, "compress the file")
		ctl.Flags(f)
	},
	run: runBackup,
}

func runBackup(ctx context.Context, p *Program, c *call) error {
	var write writing = func(to io.Writer) (*backup.Manifest, error) { return p.online(ctx, c, to) }
	if dir := c.text("data"); dir != "" {
		if err := c.alone("data", "gzip"); err != nil {
			return err
		}
		write = func(to io.Writer) (*backup.Manifest, error) { return p.offline(ctx, dir, to) }
	}
	if c.yes("gzip") {
		write = compressed(write)
	}
	m, size, err := p.save(c.operand, write)
	if err != nil {
		return err
	}
	to := p.Stdout
	if c.operand == "-" {
		to = p.Stderr
	}
	fmt.Fprintf(printable.Writer(to), "%s: backup of %s as of %s, %d logs, %d files, %d bytes\n",
		c.operand, cmp.Or(m.Node, c.text("data")), m.Time.UTC().Format(time.RFC3339), m.Shards, len(m.Files), size)
	return nil
}

// alone refuses other flags together with name.
func (c *call) alone(name, except string) (err error) {
	c.Visit(func(f *flag.Flag) {
		if f.Name != name && f.Name != except {
			err = misused("--%s has no effect with --%s", f.Name, name)
		}
	})
	return err
}

type writing func(to io.Writer) (*backup.Manifest, error)

// compressed makes a backup and compresses it.
func compressed(write writing) writing {
	return func(to io.Writer) (*backup.Manifest, error) {
		z, err := gzip.NewWriterLevel(to, gzip.BestSpeed)
		if err != nil {
			return nil, err
		}
		m, err := write(z)
		if err != nil {
			return nil, err
		}
		return m, z.Close()
	}
}

// offline writes the backup of a data directory.
func (p *Program) offline(ctx context.Context, dir string, to io.Writer) (*backup.Manifest, error) {
	contents, err := backup.Offline(ctx, backup.Manifest{Version: p.Version, Time: time.Now().UTC()}, dir)
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("%w; a running broker is backed up over its management API, without --data", err)
	}
	if err != nil {
		return nil, err
	}
	err = contents.Write(ctx, to, func(int64) error { return nil })
	return &contents.Manifest, errors.Join(err, contents.Close())
}

// stall is how long a broker may send nothing before the backup is given up.
const stall = 2 * time.Minute

// online writes the backup of a running broker, and checks it at the same time.
func (p *Program) online(ctx context.Context, c *call, to io.Writer) (*backup.Manifest, error) {
	r, err := ctl.Connect(ctl.Given(c.FlagSet), p.Environ, p.transport)
	if err != nil {
		return nil, misused("%v", err)
	}
	defer r.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(stall, func() { cancel(fmt.Errorf("the broker has sent nothing for %v", stall)) })
	defer watch.Stop()
	body, err := r.Stream(ctx, ctl.Path("backup"))
	if refused, ok := errors.AsType[*ctl.Refusal](err); ok && refused.Status == http.StatusNotFound {
		return nil, errors.New("this broker cannot be backed up while it runs: it is another one, or of an older version; stop it and use --data")
	}
	if err != nil {
		return nil, cause(ctx, err)
	}
	defer body.Close() //nolint:errcheck // only read from
	m, err := backup.Read(io.TeeReader(&watched{body, watch}, to), backup.Check{})
	if err != nil {
		return nil, p.explain(ctx, r, cause(ctx, err))
	}
	return m, nil
}

// watched is a reader that reports each read that brings bytes.
type watched struct {
	io.Reader
	watch *time.Timer
}

func (r *watched) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if n > 0 {
		r.watch.Reset(stall)
	}
	return n, err
}

// cause returns why ctx has ended, if it has, instead of an error that follows from that.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// explain adds the broker's own reason to the error of a backup that ended too early.
func (p *Program) explain(ctx context.Context, r *ctl.Remote, err error) error {
	if !errors.Is(err, backup.ErrIncomplete) {
		return err
	}
	var status struct {
		Last struct {
			Error string `json:"error"`
		} `json:"last"`
	}
	if r.Call(ctx, http.MethodGet, ctl.Path("backup", "status"), nil, &status) != nil || status.Last.Error == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, status.Last.Error)
}

var restoreCommand = command{
	name: "restore", operand: "FILE|-",
	about: "Makes a data directory from a backup. - is standard input. The directory must be empty or\n" +
		"missing. Everything is verified before it is put in place. From the backup of a cluster it\n" +
		"makes the folder of the first node of a new cluster.",
	more:  "Deadlines are points in time: messages due since the backup expire when the broker starts.\n",
	flags: func(f *flag.FlagSet) { f.String("data", "", "the data `directory` to make") },
	run:   runRestore,
}

func runRestore(ctx context.Context, p *Program, c *call) error {
	dir := c.text("data")
	if dir == "" {
		return misused("--data is missing: it names the directory to restore into")
	}
	from := p.Stdin
	if c.operand != "-" {
		f, err := os.Open(c.operand)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // it is only read from
		from = f
	}
	input := endable(ctx, from)
	defer input.Close() //nolint:errcheck // it is only read from
	m, reports, err := backup.Restore(ctx, input, dir)
	if err != nil {
		return fmt.Errorf("%s: %w", c.operand, err)
	}
	entries := 0
	for i := range reports {
		entries += reports[i].Entries
	}
	by := strings.Join(strings.Fields(fmt.Sprintf("%.40q", m.Version)), " ")
	fmt.Fprintf(p.Stdout, "%s: restored from %s, made by version %s as of %s: %d logs, %d entries\n",
		dir, c.operand, by, m.Time.UTC().Format(time.RFC3339), m.Shards, entries)
	if m.Copy != nil {
		fmt.Fprintf(p.Stdout, "It is the backup of a cluster: start one node with this folder, and two with empty ones.\n")
	}
	return nil
}

// endable returns a reader of r that ends when ctx does, even while r waits for input from a pipe or a terminal. The caller closes
// it. A waiting read of r then continues, at most until the process ends.
func endable(ctx context.Context, r io.Reader) io.ReadCloser {
	out, in := io.Pipe()
	context.AfterFunc(ctx, func() { in.CloseWithError(context.Cause(ctx)) })
	go func() {
		_, err := io.CopyBuffer(in, struct{ io.Reader }{r}, make([]byte, buffer))
		in.CloseWithError(err) // nil is the end
	}()
	return out
}

// counted counts the bytes that are written.
type counted struct {
	io.Writer
	bytes int64
}

func (w *counted) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	w.bytes += int64(n)
	return n, err
}

// save writes a backup to a file, and returns its size. The file gets its name, and
// replaces a file of that name, after the backup is complete and durable. A file that is
// not an ordinary one, such as a pipe, is written to directly.
func (p *Program) save(name string, write writing) (*backup.Manifest, int64, error) {
	if name == "-" {
		out := &counted{Writer: p.Stdout}
		m, err := write(out)
		return m, out.bytes, err
	}
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return nil, 0, err
		}
		out := &counted{Writer: f}
		m, err := write(out)
		return m, out.bytes, errors.Join(err, f.Close())
	}
	return replace(name, write)
}

const buffer = 1 << 20

// replace is save for an ordinary file. Only its owner may read it: it contains password hashes and messages.
func replace(name string, write writing) (m *backup.Manifest, size int64, err error) {
	dir := filepath.Dir(name)
	f, err := os.CreateTemp(dir, filepath.Base(name)+".part-")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, fmt.Errorf("%s: there is no folder %s: make it first", name, dir)
	}
	if err != nil {
		return nil, 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	buffered := bufio.NewWriterSize(f, buffer)
	out := &counted{Writer: buffered}
	if m, err = write(out); err != nil {
		return nil, 0, err
	}
	if err := errors.Join(buffered.Flush(), f.Sync()); err != nil {
		return nil, 0, err
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return nil, 0, err
	}
	return m, out.bytes, errors.Join(f.Close(), vfs.Dir(dir).Sync())
}
