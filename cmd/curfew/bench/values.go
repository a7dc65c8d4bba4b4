package bench

import (
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

// The flag values below refuse what is out of range in Set, so that the error names the flag, the value and the accepted
// range: the flag --queues does not take "0": must be a whole number from 1 to 1000000.

// whole is a whole number from lo to hi.
type whole struct {
	to     *int64
	lo, hi int64
}

func (w whole) String() string {
	if w.to == nil {
		return ""
	}
	return strconv.FormatInt(*w.to, 10)
}

func (w whole) Set(s string) error {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < w.lo || n > w.hi {
		return fmt.Errorf("must be a whole number from %d to %d", w.lo, w.hi)
	}
	*w.to = n
	return nil
}

// period is a time span of Go's notation from lo to hi.
type period struct {
	to     *time.Duration
	lo, hi time.Duration
}

func (p period) String() string {
	if p.to == nil {
		return ""
	}
	return p.to.String()
}

func (p period) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < p.lo || d > p.hi {
		return fmt.Errorf("must be a duration such as 10s, from %v to %v", p.lo, p.hi)
	}
	*p.to = d
	return nil
}

// span is a range of milliseconds, both ends included; set tells an absent one from 0..0.
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

// target is where the broker is and who we are to it.
type target struct {
	addr, vhost, user, password string
	secure                      bool        // the URI asks for TLS
	tls                         *tls.Config // nil without
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

// Set reads an AMQP URI. An absent virtual host, with or without the slash before it, is "/".
func (t *target) Set(s string) error {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "amqp" && u.Scheme != "amqps") || u.Hostname() == "" {
		return errors.New("must be amqp://USER:PASSWORD@HOST:PORT/VHOST, or the same with amqps")
	}
	vhost, err := url.PathUnescape(strings.TrimPrefix(u.EscapedPath(), "/"))
	if err != nil || len(vhost) > 255 {
		return errors.New("the virtual host must be percent-encoded and of at most 255 bytes")
	}
	t.vhost = orElse(vhost, "/")
	t.secure = u.Scheme == "amqps"
	port := "5672"
	if t.secure {
		port = "5671"
	}
	t.addr = net.JoinHostPort(u.Hostname(), orElse(u.Port(), port))
	t.user, t.password = "guest", "guest"
	if u.User != nil {
		t.user = u.User.Username()
		t.password, _ = u.User.Password()
	}
	return nil
}

func orElse(s, absent string) string {
	if s == "" {
		return absent
	}
	return s
}

// arguments are the arguments of a declaration, given as k=v once per flag: true and false are booleans, whole numbers are
// 64-bit integers, everything else is a string.
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
