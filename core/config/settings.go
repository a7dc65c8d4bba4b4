package config

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"
)

// setting is one key: its meaning, its value, and the source that set it last.
type setting struct {
	key    string
	value  *value
	doc    string // for the operator, one sentence
	live   bool   // a reload applies it; other settings need a restart
	source Source
	// examples are the settings of an example entry, if the key is an empty map; nil: this is a setting.
	examples []*setting
}

// only returns the settings without examples.
func only(all []*setting) []*setting {
	return slices.DeleteFunc(slices.Clone(all), func(s *setting) bool { return s.examples != nil })
}

// Keys that the user chooses, such as users' names, may contain dots. These are [dot] while the names are parts of
// keys.
const dot = "\x00"

// plainName returns the name behind a part of a key.
func plainName(part string) string { return strings.ReplaceAll(part, dot, ".") }

// keyPart is the inverse of [plainName].
func keyPart(name string) string { return strings.ReplaceAll(name, ".", dot) }

// envName returns the environment variable that sets a key: two underscores between parts, and one for every character that names of
// variables cannot contain.
func envName(key string) string {
	var b strings.Builder
	b.WriteString(envPrefix)
	for _, r := range key {
		switch {
		case r == '.':
			b.WriteString("__")
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			b.WriteRune(unicode.ToUpper(r))
		default:
			b.WriteByte('_')
		}
	}
	return b.String()
}

const envPrefix = "CURFEW_"

// prefixes is a list of networks. A single address counts as a network.
func prefixes(p *[]netip.Prefix) *value {
	var words []string
	for _, network := range *p {
		words = append(words, formatPrefix(network))
	}
	v := list(&words, func(words []string) error {
		all := make([]netip.Prefix, len(words))
		for i, word := range words {
			var err error
			if all[i], err = parsePrefix(word); err != nil {
				return fmt.Errorf("has %q, which %w", word, err)
			}
			words[i] = formatPrefix(all[i])
		}
		*p = all
		return nil
	}, "a list of addresses and networks such as [10.0.0.7, 192.0.2.0/24, 2001:db8::/32]")
	return v
}

func formatPrefix(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

func parsePrefix(s string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(s); err == nil {
		if addr.Zone() != "" {
			return netip.Prefix{}, errors.New("has a zone: leave it out")
		}
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return p, errors.New("is not an address or a network")
	case p.Addr().Is4In6():
		return p, errors.New("is IPv4 in IPv6: write it as IPv4")
	case p != p.Masked():
		return p, fmt.Errorf("has more bits than its %d (%s?)", p.Bits(), p.Masked())
	}
	return p, nil
}
