package config

import (
	"errors"
	"fmt"
	"net/netip"
)

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
