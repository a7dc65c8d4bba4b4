package config

import (
	"cmp"
	"errors"
	"slices"
	"strings"
)

// loader collects the problems of one Load.
type loader struct {
	in       Input
	cfg      *Config
	layers   []*layer // in increasing order of precedence
	problems []*Error
	// spoiled are plugin sections that were refused as a whole: problems of their keys are not reported.
	spoiled map[string]bool
	// openEnded are sections whose keys are chosen by the user.
	openEnded []string
}

func (l *loader) refuse(e *Error) { l.problems = append(l.problems, e) }

func (l *loader) err() error {
	slices.SortStableFunc(l.problems, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Source.Kind, b.Source.Kind), cmp.Compare(a.Source.Line, b.Source.Line))
	})
	errs := make([]error, len(l.problems))
	for i, p := range l.problems {
		errs[i] = p
	}
	return errors.Join(errs...)
}

func (l *loader) read() {
	if l.in.File != "" {
		file, problems := readFile(l.in.File)
		l.problems = append(l.problems, problems...)
		if file != nil {
			l.layers = append(l.layers, file)
		}
	}
	l.layers = append(l.layers, readEnv(l.in.Environ), readFlags(l.in.Flags))
}

// assign sets the settings from the layers. Later layers override earlier ones.
func (l *loader) assign(settings []*setting) {
	for _, y := range l.layers {
		for _, s := range settings {
			v, from, ok := y.value(s.key)
			if !ok {
				continue
			}
			if e := s.assign(v); e != nil {
				e.Key, e.Source = s.key, from
				l.refuse(e)
				continue
			}
			s.source = from
		}
	}
}

func (s *setting) assign(v any) *Error {
	switch v := v.(type) {
	case string:
		return s.refused(v, s.value.set(v))
	case quoted:
		set := s.value.set
		if s.value.setQuoted != nil {
			set = s.value.setQuoted
		}
		return s.refused(string(v), set(string(v)))
	case []string:
		if s.value.setList == nil {
			return &Error{Problem: "is a single value, not a list", Accepted: s.value.accepted}
		}
		return s.refused(strings.Join(v, ", "), s.value.setList(v))
	case nil:
		return &Error{Problem: "has no value; leave the key out for its default", Accepted: s.value.accepted}
	}
	return &Error{Problem: "is a single value, not a section", Accepted: s.value.accepted}
}

// refused returns the problem with a text; nil = it was accepted.
func (s *setting) refused(text string, err error) *Error {
	if err == nil {
		return nil
	}
	if s.value.secret {
		text = hidden
	}
	return &Error{Value: text, HasValue: true, Problem: err.Error(), Accepted: s.value.accepted}
}

// refuseUnknown reports every name in the layers that is not a key.
func (l *loader) refuseUnknown() {
	for _, y := range l.layers {
		known := make([]string, len(l.cfg.settings))
		for i, s := range l.cfg.settings {
			known[i] = y.name(s.key)
		}
		for _, name := range y.names() {
			if !slices.Contains(known, name) {
				l.refuseName(y, name, known)
			}
		}
	}
}

func (l *loader) refuseName(y *layer, name string, known []string) {
	if l.isSpoiled(y, name) {
		return
	}
	from := y.source(name)
	if members := below(name+y.sep, known); len(members) > 0 {
		if v := y.said.Get(name); v != nil && !isSection(v) {
			l.refuse(&Error{Key: name, Problem: "is a section; it has the " + y.term + "s " + strings.Join(members, ", "), Source: from})
		}
		return
	}
	if y.sep == "." && slices.ContainsFunc(known, func(k string) bool { return strings.HasPrefix(name, k+".") }) {
		return // the key above was refused because it is a section
	}
	if slices.ContainsFunc(l.openEnded, func(section string) bool { return y.name(section) == name }) {
		l.refuse(&Error{Key: name, Problem: "is a section: it has " + y.term + "s of your choice, and no value", Source: from})
		return
	}
	l.refuse(&Error{Key: name, Problem: unknown(y.term, name, known), Source: from})
}

// below returns the known names that begin with prefix.
func below(prefix string, known []string) []string {
	var names []string
	for _, k := range known {
		if strings.HasPrefix(k, prefix) {
			names = append(names, k)
		}
	}
	return names
}

func isSection(v any) bool {
	_, ok := v.(map[string]any)
	return ok
}

// unknown returns a problem: the name is unknown. It suggests a similar known name.
func unknown(what, name string, known []string) string {
	return "unknown " + what + Suggest(name, known, "%s")
}

// checkTogether checks settings that depend on one another, each of which is valid by itself.
func (l *loader) checkTogether() {
	c := l.cfg
	if c.Listen.AMQP == "" && c.Listen.AMQPS == "" {
		l.need("listen.amqp", "listen.amqp", "is off, and so is listen.amqps: no client could connect")
	}
	for _, n := range []struct {
		key, value, because, how string
		wanted                   bool
	}{
		{"tls.cert", c.TLS.Cert, "listen.amqps", "on", c.Listen.AMQPS != ""},
		{"tls.key", c.TLS.Key, "listen.amqps", "on", c.Listen.AMQPS != ""},
		{"tls.cert", c.TLS.Cert, "listen.management-tls", "on", c.Listen.ManagementTLS != ""},
		{"tls.key", c.TLS.Key, "listen.management-tls", "on", c.Listen.ManagementTLS != ""},
		{"tls.ca", c.TLS.CA, "tls.verify-peer", "true", c.TLS.VerifyPeer},
		{"tls.ca", c.TLS.CA, "management.client-certificates", c.Management.ClientCertificates, c.Management.ClientCertificates != "off"},
		{"tls.ca", c.TLS.CA, "auth.certificate-login", "on", c.Auth.CertificateLogin != CertificateLoginOff},
	} {
		if n.wanted && n.value == "" {
			l.need(n.key, n.because, "is missing: "+n.because+" is "+n.how)
		}
	}
}

// need reports that the setting key is not as the setting because requires. It reports each key once.
func (l *loader) need(key, because, problem string) {
	if slices.ContainsFunc(l.problems, func(e *Error) bool { return e.Key == key }) {
		return // it is set, but invalid
	}
	l.refuse(&Error{Key: key, Problem: problem, Source: l.cfg.setting(because).source})
}

func (c *Config) setting(key string) *setting {
	i := slices.IndexFunc(c.settings, func(s *setting) bool { return s.key == key })
	if i < 0 {
		return nil
	}
	return c.settings[i]
}
