package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/replicas"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

func zipped(tb testing.TB, b []byte) []byte {
	tb.Helper()
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	_, err := w.Write(b)
	must(tb, errors.Join(err, w.Close()))
	return z.Bytes()
}

func TestRestore(t *testing.T) {
	from, archive := source(t)
	want := entriesOf(t, from)
	for _, tt := range []struct {
		name    string
		archive []byte
		prepare func(dir string)
	}{
		{"into a folder that is missing", archive, func(string) {}},
		{"compressed", zipped(t, archive), func(string) {}},
		{"into an empty folder", archive, func(dir string) { must(t, os.MkdirAll(filepath.Join(dir, "lost+found"), 0o755)) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "deep", "data")
			tt.prepare(dir)
			m, reports, err := Restore(t.Context(), bytes.NewReader(tt.archive), dir)
			must(t, err)
			if m.Version != "1.2.3" || m.Node != "curfew@test" || !m.Time.Equal(time.Unix(1e9, 0)) || m.Shards != 2 {
				t.Errorf("the manifest is %+v", m)
			}
			if len(reports) != 2 || reports[1].Entries != len(want) {
				t.Errorf("got reports %+v", reports)
			}
			for name, want := range map[string]string{"a.policy": "policy a", "b-1.policy": "policy b"} {
				if got, err := os.ReadFile(filepath.Join(dir, PolicyFolder, name)); err != nil || string(got) != want {
					t.Errorf("%s: got %q, %v", name, got, err)
				}
			}
			if names := namesIn(t, dir); slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, "restore-") || strings.HasPrefix(n, "c.") }) {
				t.Errorf("there are %q", names)
			}
			if got := entriesOf(t, dir); !slices.Equal(got, want) {
				t.Errorf("%d entries, want %d", len(got), len(want))
			}
		})
	}
}

// namesIn lists the content of a directory; nil if it does not exist.
func namesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	must(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestRestoreKeepsWhatIsThere(t *testing.T) {
	from, archive := source(t)
	before := namesIn(t, from)
	if _, _, err := Restore(t.Context(), bytes.NewReader(archive), from); err == nil || !strings.Contains(err.Error(), "is not empty: there is 00000-00000001.first") {
		t.Errorf("into a folder in use: got error %v", err)
	}
	if after := namesIn(t, from); !slices.Equal(before, after) {
		t.Errorf("there were %q, and are %q", before, after)
	}
	dir := t.TempDir()
	unlock, err := seg.Lock(vfs.Dir(dir))
	must(t, err)
	if _, _, err := Restore(t.Context(), bytes.NewReader(archive), dir); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("into a locked folder: got error %v", err)
	}
	must(t, unlock())
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	if _, _, err := Restore(t.Context(), bytes.NewReader(archive), file); err == nil {
		t.Error("a file was taken for a folder")
	}
}

// meddled is an archive during whose restore a broker is started, which makes a folder before it finds out that the directory is in use.
type meddled struct {
	io.Reader
	dir string
}

func (m *meddled) Read(b []byte) (int, error) {
	if err := os.MkdirAll(filepath.Join(m.dir, PolicyFolder, "compiled", "amd64"), 0o700); err != nil {
		return 0, err
	}
	return m.Reader.Read(b)
}

// A service that is restarted again and again while its directory is being restored does not make the restore fail.
func TestRestoreBesideABrokerThatIsStarted(t *testing.T) {
	_, archive := source(t)
	dir := filepath.Join(t.TempDir(), "data")
	_, _, err := Restore(t.Context(), &meddled{bytes.NewReader(archive[:len(archive)/2]), dir}, dir)
	if !errors.Is(err, ErrIncomplete) || strings.Contains(err.Error(), "not empty") {
		t.Errorf("half of it: got error %v", err)
	}
	if names := namesIn(t, dir); names != nil {
		t.Errorf("half of it: %q stay", names)
	}
	_, _, err = Restore(t.Context(), &meddled{bytes.NewReader(archive), dir}, dir)
	must(t, err)
	if got := namesIn(t, filepath.Join(dir, PolicyFolder)); !slices.Equal(got, []string{"a.policy", "b-1.policy", "compiled"}) {
		t.Errorf("got %q", got)
	}
}

// However an archive is truncated or altered, none of its content remains.
func TestRestoreRefuses(t *testing.T) {
	_, archive := source(t)
	altered := func(at int) []byte {
		b := bytes.Clone(archive)
		b[at] ^= 1
		return b
	}
	log := bytes.Index(archive, []byte("entry 50 "))
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name    string
		ctx     context.Context
		archive []byte
		want    string
	}{
		{"nothing", t.Context(), nil, "it ends too early"},
		{"half of it", t.Context(), archive[:len(archive)/2], "it ends too early"},
		{"all but the digests", t.Context(), archive[:bytes.LastIndex(archive, []byte(sumsName))], "it ends too early"},
		{"a compressed half", t.Context(), zipped(t, archive)[:2000], "it ends too early"},
		{"an altered message", t.Context(), altered(log), "the digest of 00001-00000002.seg is not the one in SHA256SUMS"},
		{"an altered policy", t.Context(), altered(bytes.Index(archive, []byte("policy a"))), "the digest of policies/a.policy is not"},
		{"something behind it", t.Context(), append(bytes.Clone(archive), "more"...), "data after the end"},
		{"much behind it", t.Context(), append(bytes.Clone(archive), make([]byte, maxTail+1)...), "data after the end"},
		{"text", t.Context(), []byte(strings.Repeat("definitely not a tar archive ", 100)), "this is not a backup of Curfew"},
		{"a few bytes", t.Context(), []byte("hi"), "this is not a backup of Curfew"},
		{"compressed text", t.Context(), zipped(t, []byte("definitions")), "this is not a backup of Curfew"},
		{"an interrupt", canceled, archive, "context canceled"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, dir := range []string{filepath.Join(t.TempDir(), "data"), t.TempDir()} {
				before := namesIn(t, dir)
				_, _, err := Restore(tt.ctx, bytes.NewReader(tt.archive), dir)
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got error %v, want %q", err, tt.want)
				}
				if after := namesIn(t, dir); !slices.Equal(before, after) {
					t.Errorf("%q stay", after)
				}
			}
		})
	}
}

// Until the last file is in place, every broker refuses a directory whose restore is not finished.
func TestAnUnfinishedRestoreIsNoDataDirectory(t *testing.T) {
	_, archive := source(t)
	whole := filepath.Join(t.TempDir(), "data")
	m, _, err := Restore(t.Context(), bytes.NewReader(archive), whole)
	must(t, err)
	for n := range m.Files {
		dir := t.TempDir()
		must(t, os.Mkdir(filepath.Join(dir, PolicyFolder), 0o700))
		for i := range m.Files {
			if f := &m.Files[i]; i < n || f.isBeginning() {
				must(t, os.Link(filepath.Join(whole, f.Name), filepath.Join(dir, f.Name)))
			}
		}
		reports, err := seg.Verify(t.Context(), vfs.Dir(dir))
		must(t, err)
		if !slices.ContainsFunc(reports, func(r seg.ShardReport) bool { return len(r.Damage) > 0 }) {
			t.Errorf("with %d files of %d it is taken for whole", n, len(m.Files))
		}
	}
}

func TestHostileArchives(t *testing.T) {
	with := func(change func(m *Manifest)) []byte {
		m := smallest()
		change(m)
		return archiveOf(t, manifestOf(t, m))
	}
	name := func(n string) []byte { return with(func(m *Manifest) { m.Files[0].Name = n }) }
	ok := manifestOf(t, smallest())
	log := named("00000-00000001.seg", "abc")
	link := log
	link.header.Typeflag, link.header.Linkname, link.body = tar.TypeSymlink, "/etc/passwd", ""
	device := log
	device.header.Typeflag, device.body = tar.TypeChar, ""
	long := strings.Repeat("x", 4096)
	for _, tt := range []struct {
		name    string
		archive []byte
		want    string
	}{
		{"another first file", archiveOf(t, log), "this is not a backup of Curfew"},
		{"a first file with a longer name", archiveOf(t, named(manifestName+"x", "{}")), `the archive has "backup.jsonx" where backup.json belongs`},
		{"a manifest that is not JSON", archiveOf(t, named(manifestName, "{")), "backup.json: "},
		{"a later format", with(func(m *Manifest) { m.Format, m.Version = 3, "9.9" }), `has format 3 and was made by version "9.9": this one reads formats up to 2`},
		{"a cluster's in the format of a broker's", with(func(m *Manifest) { m.Copy = &replicas.Copy{Node: 1, Shards: 1} }), "format 1 has no backups of clusters"},
		{"a cluster without a shard", with(func(m *Manifest) { m.Format, m.Copy = 2, &replicas.Copy{Node: 1, Shards: 1} }), "there is no log of shard 1"},
		{"a cluster with too many shards", with(func(m *Manifest) { m.Format, m.Copy = 2, &replicas.Copy{Node: 1, Shards: math.MaxUint32} }), "a cluster has 1 to 255"},
		{"a cluster with logs of a later format", with(func(m *Manifest) { m.Format, m.Copy = 2, &replicas.Copy{Node: 1, Shards: 1, Format: 9} }), "format 9 of logs"},
		{"a cluster of no node", with(func(m *Manifest) { m.Format, m.Copy = 2, &replicas.Copy{Shards: 1} }), "the node has no number"},
		{"no format", with(func(m *Manifest) { m.Format = 0 }), "format 0"},
		{"a path upwards", name("../00000-00000001.seg"), "no file of a data directory has this name"},
		{"an absolute path", name("/etc/passwd"), "no file of a data directory has this name"},
		{"a policy elsewhere", name("policies/../../x.policy"), "no file of a data directory has this name"},
		{"a policy in a folder", name("policies/compiled/x.policy"), "no file of a data directory has this name"},
		{"the lock", name("LOCK"), "no file of a data directory has this name"},
		{"a spare file", name("00000-00000001.spare"), "no file of a data directory has this name"},
		{"a long name", name(long), "no file of a data directory has this name"},
		{"a name with a zero", name("00000-00000001.seg\x00"), "no file of a data directory has this name"},
		{"a log without definitions", name("00001-00000001.seg"), "there is no log of definitions"},
		{"no files", with(func(m *Manifest) { m.Files = nil }), "there is no log of definitions"},
		{"another number of logs", with(func(m *Manifest) { m.Shards = 3 }), "shards is 3, but there are the files of 1"},
		{"a file twice", with(func(m *Manifest) { m.Files = append(m.Files, m.Files[0]) }), "is listed twice"},
		{"fewer than no bytes", with(func(m *Manifest) { m.Files[0].Bytes = -1 }), "bytes -1 of size 4096"},
		{"more bytes than the file has", with(func(m *Manifest) { m.Files[0].Bytes = 5000 }), "bytes 5000 of size 4096"},
		{"an endless file", with(func(m *Manifest) { m.Files[0].Size = math.MaxInt64 }), "accepted are 0 <= bytes <= size <="},
		{"a beginning with content", with(func(m *Manifest) { m.Files[0] = File{"00000-00000001.first", 1, 1} }), "accepted are 0 <= bytes <= size <= 0"},
		{"a policy that is too large", with(func(m *Manifest) { m.Files[0] = File{"policies/x.policy", maxPolicy + 1, maxPolicy + 1} }), "accepted are"},
		{"a policy behind a log", with(func(m *Manifest) { m.Files = append(m.Files, File{Name: "policies/x.policy"}) }), "comes after a log"},
		{"too many files", with(func(m *Manifest) { m.Files = make([]File, maxFiles+1) }), "more than 262144, the most"},
		{"files that are no list", archiveOf(t, named(manifestName, `{"format":1,"files":{}}`)), "files: is not a list"},
		{"a long number", archiveOf(t, named(manifestName, `{"format":`+strings.Repeat("1", 1<<20)+`}`)), "cannot unmarshal number"},
		{"a long time", archiveOf(t, named(manifestName, `{"format":1,"time":"`+long+`"}`)), "parsing time"},
		{"more digests than files", archiveOf(t, ok, log, named(sumsName, strings.Repeat("\n", 1<<20))), "SHA256SUMS has 1048576 bytes"},
		{"other digests", archiveOf(t, ok, log, named(sumsName, "\n")), "the digest of backup.json is not the one"},
		{"more space than the disk has", with(func(m *Manifest) {
			m.Files = nil
			for i := range 100_000 {
				m.Files = append(m.Files, File{Name: "00000-" + hex8(i) + ".seg", Size: 1 << 30})
			}
		}), "bytes are free, and the backup needs"},
		{"a link", archiveOf(t, ok, link), "is not an ordinary file"},
		{"a device", archiveOf(t, ok, device), "is not an ordinary file"},
		{"another size", archiveOf(t, ok, named("00000-00000001.seg", "abcd")), "has 4 bytes, and 3 in backup.json"},
		{"another file", archiveOf(t, ok, named("../x", "abc")), `the archive has "../x" where 00000-00000001.seg belongs`},
		{"a file more", archiveOf(t, ok, log, log), `the archive has "00000-00000001.seg" where SHA256SUMS belongs`},
		{"a file behind the end", archiveOf(t, append(summed(ok, log), log)...), "there is a file after SHA256SUMS"},
		{"no log", archiveOf(t, summed(ok, log)...), "the logs in the backup cannot be used: "},
		{"a bomb", zipped(t, append(archiveOf(t, summed(ok, log)...), make([]byte, 64<<20)...)), "data after the end"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			_, _, err := Restore(t.Context(), bytes.NewReader(tt.archive), dir)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want %q", err, tt.want)
			} else if len(err.Error()) > 400 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			if names := namesIn(t, dir); names != nil {
				t.Errorf("%q stay", names)
			}
		})
	}
}

// The memory for a manifest is limited by the limits on files, however little text a file needs in it. The archive of this one
// has some ten kilobytes.
func TestAManifestOfManyFilesTakesLittleMemory(t *testing.T) {
	list := `{"format":1,"files":[` + strings.Repeat("{},", maxManifest/3-20) + `{}]}`
	archive := zipped(t, archiveOf(t, named(manifestName, list)))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Read(bytes.NewReader(archive), Check{})
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "more than 262144") {
		t.Errorf("got error %v", err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 4*maxManifest {
		t.Errorf("it took %d MiB", took>>20)
	}
}

func hex8(i int) string {
	const digits = "0123456789abcdef"
	b := []byte("00000000")
	for at := 7; i > 0; at, i = at-1, i/16 {
		b[at] = digits[i%16]
	}
	return string(b)
}

// A policy that is replaced, unloaded or loaded while a backup begins is included if it was there just before or just after.
func TestPoliciesOnline(t *testing.T) {
	dir := t.TempDir()
	e, l := openLogs(t, dir)
	fill(t, l, 10)
	policyFile(t, dir, "unloaded.policy", "1")
	policyFile(t, dir, "replaced.policy", "2")
	folder := filepath.Join(dir, PolicyFolder)
	c, err := Online(Manifest{}, folder, func() (*seg.Snapshot, error) {
		must(t, os.Remove(filepath.Join(folder, "unloaded.policy")))
		policyFile(t, dir, "new", "another")
		must(t, os.Rename(filepath.Join(folder, "new"), filepath.Join(folder, "replaced.policy")))
		policyFile(t, dir, "loaded.policy", "3")
		return e.Snapshot()
	})
	must(t, err)
	var b bytes.Buffer
	must(t, c.Write(t.Context(), &b, func(int64) error { return nil }))
	must(t, errors.Join(c.Close(), e.Close()))
	to := filepath.Join(t.TempDir(), "data")
	_, _, err = Restore(t.Context(), &b, to)
	must(t, err)
	if got := namesIn(t, filepath.Join(to, PolicyFolder)); !slices.Equal(got, []string{"loaded.policy", "replaced.policy", "unloaded.policy"}) {
		t.Errorf("got %q", got)
	}
	if got, err := os.ReadFile(filepath.Join(to, PolicyFolder, "replaced.policy")); err != nil || string(got) != "2" {
		t.Errorf("the contents changed while the file was open: %q, %v", got, err)
	}
}

func TestOfflineRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := Offline(t.Context(), Manifest{}, dir); err == nil || err.Error() != "there is no log in "+dir {
		t.Errorf("got error %v", err)
	}
	if _, err := Offline(t.Context(), Manifest{}, filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got error %v", err)
	}
	e, _ := openLogs(t, dir)
	if _, err := Offline(t.Context(), Manifest{}, dir); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("got error %v", err)
	}
	must(t, e.Close())
}

// A step that fails ends the backup, and releases everything.
func TestWriteEndsEarly(t *testing.T) {
	dir := t.TempDir()
	e, l := openLogs(t, dir)
	fill(t, l, 200)
	failed := errors.New("enough")
	c, err := Online(Manifest{}, "", e.Snapshot)
	must(t, err)
	var b bytes.Buffer
	steps := 0
	if err := c.Write(t.Context(), &b, func(int64) error {
		if steps++; steps == 3 {
			return failed
		}
		return nil
	}); !errors.Is(err, failed) {
		t.Errorf("got error %v", err)
	}
	must(t, errors.Join(c.Close(), e.Close()))
	if _, err := Read(&b, Check{}); !errors.Is(err, ErrIncomplete) {
		t.Errorf("what was written is read with %v", err)
	}
}

// limited fails the test if more bytes are written than the manifest says.
type limited struct {
	*testing.T
	left int64
}

func (l *limited) Begin(m *Manifest) error {
	l.left, _ = m.Bytes()
	return nil
}

func (l *limited) Create(*File) (io.WriteCloser, error) { return l, nil }

func (l *limited) Write(b []byte) (int, error) {
	if l.left -= int64(len(b)); l.left < 0 {
		l.Fatal("more bytes than the manifest says")
	}
	return len(b), nil
}

func (l *limited) Close() error { return nil }

func FuzzRead(f *testing.F) {
	ok, log := manifestOf(f, smallest()), named("00000-00000001.seg", "abc")
	whole := archiveOf(f, summed(ok, log)...)
	f.Add(whole)
	f.Add(zipped(f, whole))
	f.Add(whole[:1500])
	f.Add(archiveOf(f, ok, log, log))
	f.Fuzz(func(t *testing.T, b []byte) {
		to := &limited{T: t}
		if m, err := Read(bytes.NewReader(b), to); err == nil && (to.left != 0 || m.Shards == 0) {
			t.Errorf("it was accepted with %d bytes missing: %+v", to.left, m)
		}
	})
}
