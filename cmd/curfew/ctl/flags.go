package ctl

import (
	"flag"
	"maps"
	"strings"
)

// connecting are the options for the address of the API and the user. Other commands of this binary use them through [Flags].
func connecting() []option {
	return []option{
		{long: "url", value: "URL", about: "the management API's URL (default http://localhost:15672)"},
		{long: "host", value: "host", about: "the API's host, instead of a URL"},
		{long: "port", value: "port", numeric: true, about: "the API's port, instead of a URL"},
		{long: "username", short: "u", value: "user", about: "the user to log in as (default guest)"},
		{long: "password", value: "password", about: "the user's password (default guest)"},
		{long: "cacert", value: "file", about: "PEM file with the certificates to trust, for TLS"},
		{long: "insecure", about: "accept any certificate, for TLS"},
		{long: "cert", value: "file", about: "PEM file with the client certificate to log in with, for TLS"},
		{long: "key", value: "file", about: "PEM file with its key, if that is a separate file"},
	}
}

// otherNames maps options of "curfew ctl" to the names that other commands used for them before all commands used the same names.
var otherNames = map[string]string{"user": "username"}

// Flags registers the options for the address of the API and the user.
func Flags(f *flag.FlagSet) {
	for _, o := range connecting() {
		if o.value == "" {
			f.Bool(o.long, false, o.about)
		} else {
			f.String(o.long, "", strings.Replace(o.about, o.value, "`"+o.value+"`", 1))
		}
		if o.short != "" {
			f.Var(f.Lookup(o.long).Value, o.short, "")
		}
	}
	for name, of := range otherNames {
		f.Var(f.Lookup(of).Value, name, "")
	}
}

// Given returns those of [Flags] that were given, as [Connect] takes them.
func Given(f *flag.FlagSet) map[string]string {
	names := map[string]string{}
	for _, o := range connecting() {
		names[o.long] = o.long
		if o.short != "" {
			names[o.short] = o.long
		}
	}
	maps.Copy(names, otherNames)
	given := map[string]string{}
	f.Visit(func(g *flag.Flag) {
		if name := names[g.Name]; name != "" {
			given[name] = g.Value.String()
		}
	})
	if given["insecure"] != "true" {
		delete(given, "insecure")
	}
	return given
}
