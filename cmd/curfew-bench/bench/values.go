package bench

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
)

// The flag values below check their ranges in Set, so that the error names the flag, the value and the accepted range: "the flag
// --queues does not take "0": must be a whole number from 1 to 1000000".

// bounded is a number or a duration from lo to hi.
type bounded[T int64 | time.Duration] struct {
	to     *T
	lo, hi T
	parse  func(string) (T, error)
	kind   string
}

func (b bounded[T]) String() string {
	if b.to == nil {
		return ""
	}
	return fmt.Sprint(*b.to)
}

func (b bounded[T]) Set(s string) error {
	v, err := b.parse(s)
	if err != nil || v < b.lo || v > b.hi {
		return fmt.Errorf("must be %s from %v to %v", b.kind, b.lo, b.hi)
	}
	*b.to = v
	return nil
}

// span is a range of milliseconds, with both ends; set is false if none was given, as opposed to 0..0.
type span struct {
	lo, hi int64
	set    bool
}

func (s *span) String() string {
	if s == nil || !s.set {
		return ""
	}
	return fmt.Sprintf("%d..%d", s.lo, s.hi)
}

func (s *span) Set(v string) error {
	from, to, ok := strings.Cut(v, "..")
	if !ok {
		to = from
	}
	lo, err1 := strconv.ParseInt(from, 10, 64)
	hi, err2 := strconv.ParseInt(to, 10, 64)
	if err1 != nil || err2 != nil || lo < 0 || hi < lo || hi > maxMillis {
		return fmt.Errorf("must be A..B, two whole numbers of milliseconds with 0 <= A <= B <= %d", maxMillis)
	}
	*s = span{lo: lo, hi: hi, set: true}
	return nil
}

// target is the broker's address, with user and password.
type target struct {
	addr, vhost, user, password string
	secure                      bool        // the URI asks for TLS
	tls                         *tls.Config // nil = without TLS
}

func (t *target) String() string {
	if t == nil || t.addr == "" {
		return ""
	}
	scheme := "amqp"
	if t.secure {
		scheme = "amqps"
	}
	u := url.URL{Scheme: scheme, User: url.UserPassword(t.user, t.password), Host: t.addr, Path: "/"}
	if t.vhost != "/" {
		u.RawPath = "/" + url.PathEscape(t.vhost)
		u.Path += t.vhost
	}
	return u.String()
}

// Set reads an AMQP URI. Without a virtual host, with or without the slash before it, the virtual host is "/".
func (t *target) Set(s string) error {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "amqp" && u.Scheme != "amqps") || u.Hostname() == "" {
		return errors.New("must be amqp://USER:PASSWORD@HOST:PORT/VHOST, or the same with amqps")
	}
	vhost, err := url.PathUnescape(strings.TrimPrefix(u.EscapedPath(), "/"))
	if err != nil || len(vhost) > 255 {
		return errors.New("the virtual host must be percent-encoded and of at most 255 bytes")
	}
	t.vhost = cmp.Or(vhost, "/")
	t.secure = u.Scheme == "amqps"
	port := "5672"
	if t.secure {
		port = "5671"
	}
	t.addr = net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port))
	t.user, t.password = "guest", "guest"
	if u.User != nil {
		t.user = u.User.Username()
		t.password, _ = u.User.Password()
	}
	return nil
}

// arguments are the arguments of a declaration, one k=v for each use of the flag. true and false are booleans, whole numbers are 64-bit
// integers, and everything else is a string.
type arguments struct{ table amqp.Table }

func (a *arguments) String() string {
	if a == nil {
		return ""
	}
	var kvs []string
	for _, f := range a.table {
		kvs = append(kvs, fmt.Sprintf("%s=%v", f.Key, f.Value))
	}
	return strings.Join(kvs, ",")
}

func (a *arguments) Set(s string) error {
	key, v, ok := strings.Cut(s, "=")
	if !ok || key == "" || len(key) > 128 {
		return errors.New("must be k=v with a key of 1 to 128 bytes")
	}
	if _, twice := a.table.Lookup(key); twice {
		return fmt.Errorf("%s is given twice", key)
	}
	a.table = append(a.table, amqp.Field{Key: key, Value: argument(v)})
	return nil
}

func argument(s string) any {
	if s == "true" || s == "false" {
		return s == "true"
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n
	}
	return s
}
