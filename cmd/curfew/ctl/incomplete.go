package ctl

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// warnOf prints a warning about each thing that an answer from a node of a cluster lacks, once for each text.
func (c *client) warnOf(h http.Header) {
	if nodes := h.Get("Curfew-Unreachable"); nodes != "" {
		names := strings.Split(nodes, ", ")
		for i, name := range names {
			names[i] = shown(name)
		}
		c.warnOnce("no answer from " + strings.Join(names, ", ") + ": their part of the answer is missing")
	}
	if vhosts := h.Get("Curfew-Missing-Vhosts"); vhosts != "" {
		names := strings.Split(vhosts, ", ")
		for i, escaped := range names {
			if name, err := url.PathUnescape(escaped); err == nil {
				names[i] = "'" + shown(name) + "'"
			}
		}
		c.warnOnce(fmt.Sprintf("the virtual hosts %s have no owner now: their part is missing", strings.Join(names, ", ")))
	}
	if h.Get("Curfew-Stale") != "" {
		c.warnOnce("the node does not reach a majority of the cluster's nodes, or lacks the latest changes: the answer may be out of date")
	}
}

func (c *client) warnOnce(text string) {
	if c.warn == nil || c.warned[text] {
		return
	}
	if c.warned == nil {
		c.warned = map[string]bool{}
	}
	c.warned[text] = true
	c.warn(text)
}
