package mgmt

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"strconv"
	"strings"
	"time"
)

// profilesRoot is the path below which the profiles of the process are, in the formats of package net/http/pprof. That package is not used,
// because it registers itself with every server of the process, and lets a profile last for as long as the client says.
const profilesRoot = "/debug/pprof/"

// The lengths of profiles, in seconds.
const (
	profileSeconds    = 30
	maxProfileSeconds = 60
	traceSeconds      = 1
	maxTraceSeconds   = 10 // a trace has megabytes in a second
)

// profile answers a request for a profile of the process.
func (a *API) profile(w http.ResponseWriter, r *http.Request) {
	c := &request{caller: caller{api: a, w: w, r: r}}
	if err := sendProfile(c, strings.TrimPrefix(r.URL.EscapedPath(), profilesRoot)); err != nil { //nolint:contextcheck // the request has it
		c.refuse(err)
	}
}

func sendProfile(c *request, name string) error {
	if !c.api.Profiles {
		return errNotFound
	}
	if err := admitToProfiles(c); err != nil {
		return err
	}
	if c.r.Method != http.MethodGet {
		c.w.Header().Set("Allow", "GET")
		return &failure{status: http.StatusMethodNotAllowed}
	}
	if name == "" {
		return listProfiles(c)
	}
	return sendSample(c, name)
}

func sendSample(c *request, name string) error {
	switch name {
	case "profile":
		return recordProfile(c, profileSeconds, maxProfileSeconds, func(w io.Writer) (func(), error) {
			return pprof.StopCPUProfile, pprof.StartCPUProfile(w)
		})
	case "trace":
		return recordProfile(c, traceSeconds, maxTraceSeconds, func(w io.Writer) (func(), error) { return trace.Stop, trace.Start(w) })
	}
	return sendSnapshot(c, name)
}

// admitToProfiles lets in administrators that send their password with the request, because profiles cost time and memory, and show the
// broker's inside. Sessions of browsers do not count, and pages of other sites cannot use a password that a browser remembers.
func admitToProfiles(c *request) error {
	if site := c.r.Header.Get("Sec-Fetch-Site"); site != "" && site != "none" && site != "same-origin" {
		return &failure{http.StatusForbidden, "forbidden", "profiles are not for pages of other sites"}
	}
	if err := checkSite(c.r); err != nil {
		return err
	}
	name, password, ok := c.r.BasicAuth()
	if !ok {
		return errNoLogin
	}
	if err := c.check(name, password); err != nil {
		return err
	}
	return c.authorise(administrator)
}

func listProfiles(c *request) error {
	var b strings.Builder
	fmt.Fprintf(&b, "profile?seconds=%d\ntrace?seconds=%d\n", profileSeconds, traceSeconds)
	for _, p := range profiles() {
		fmt.Fprintf(&b, "%s %d\n", p.Name(), p.Count())
	}
	c.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(c.w, b.String()) // a client that has gone needs no answer
	return nil
}

// profiles returns the profiles of moments, by name.
func profiles() []*pprof.Profile {
	all := pprof.Profiles()
	slices.SortFunc(all, func(a, b *pprof.Profile) int { return strings.Compare(a.Name(), b.Name()) })
	return all
}

// sendSnapshot sends a profile of this moment. The parameter debug asks for text.
func sendSnapshot(c *request, name string) error {
	p := pprof.Lookup(name)
	if p == nil {
		return errNotFound
	}
	debug, err := profileNumber(c, "debug", 0, 0, 2)
	if err != nil {
		return err
	}
	if name == "heap" && c.r.URL.Query().Get("gc") == "1" {
		runtime.GC()
	}
	var b bytes.Buffer // so that a slow client stops nothing
	if err := p.WriteTo(&b, debug); err != nil {
		return err
	}
	nameFile(c, name, debug > 0)
	_, _ = c.w.Write(b.Bytes()) // see listProfiles
	return nil
}

// recordProfile sends a profile of some seconds. One is made at a time.
func recordProfile(c *request, seconds, most int, start func(io.Writer) (stop func(), err error)) error {
	seconds, err := profileNumber(c, "seconds", seconds, 1, most)
	if err != nil {
		return err
	}
	length := time.Duration(seconds) * time.Second
	c.takeTime(length + writeTimeout)
	var b bytes.Buffer
	stop, err := start(&b)
	if err != nil {
		c.w.Header().Set("Retry-After", strconv.Itoa(seconds))
		return &failure{http.StatusServiceUnavailable, "busy", "another profile is being made: " + err.Error()}
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), length)
	defer cancel()
	<-ctx.Done()
	stop()
	if c.r.Context().Err() != nil {
		return nil // the client has left
	}
	nameFile(c, "profile", false)
	_, _ = c.w.Write(b.Bytes()) // see listProfiles
	return nil
}

// profileNumber reads a parameter from least to most.
func profileNumber(c *request, name string, otherwise, least, most int) (int, error) {
	text := c.r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, badRequest("%s: %.20q is not a whole number from %d to %d", name, text, least, most)
	}
	return n, nil
}

// nameFile names the file of the answer.
func nameFile(c *request, name string, text bool) {
	if text {
		c.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		return
	}
	c.w.Header().Set("Content-Type", "application/octet-stream")
	c.w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
}
